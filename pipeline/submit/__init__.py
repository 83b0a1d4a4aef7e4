"""What spark-submit starts. The folder holds nothing else: Spark puts it first on the path of imports."""
