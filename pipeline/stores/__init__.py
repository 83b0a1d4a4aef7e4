"""Where tables are kept: Parquet, computed again from bronze, or Delta, merged in place."""
