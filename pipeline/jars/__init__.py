"""Jars from Maven's central repository: how they are fetched, and which ones Spark needs besides its own.

fetched_jars.py      a folder that holds the wanted jars, whole or not at all
connector_jars.py    Spark's Kafka connector and Delta, as pom.xml names them
pom.xml              their versions, the one place
"""
