"""The file for spark-submit, alone in its folder: Spark puts the folder first on the import path."""
