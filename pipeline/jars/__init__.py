"""Jars from Maven's central repository: how they are fetched, and which ones Spark needs besides its own.

connector_jars.py    which jars, and how a folder of jars appears whole or not at all
pom.xml              the only place for their versions
"""
