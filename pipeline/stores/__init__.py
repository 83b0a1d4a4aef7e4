"""Stores the tables as Parquet or as Delta.

Parquet tables are computed again from bronze; Delta tables are merged in place.
"""
