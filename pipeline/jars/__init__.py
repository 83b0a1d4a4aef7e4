"""Fetches Spark's further jars, from Maven's central repository.

connector_jars.py    which jars are needed, and how a folder of jars is replaced as a whole
pom.xml              the only place for their versions
"""
