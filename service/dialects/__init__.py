"""Other APIs over the same core: REST Proxy v2 and v3, CloudEvents, Dapr.

Each can be switched off.
"""
