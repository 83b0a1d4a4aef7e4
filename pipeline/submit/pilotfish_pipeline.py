"""`pilotfish-pipeline` as a file, for spark-submit and the Spark operator, which can't start commands.

    spark-submit --master spark://… --py-files pilotfish-0.1.0-py3-none-any.whl pilotfish_pipeline.py run …

Arguments, output and exit codes are the command's. It may be copied anywhere: it uses only the installed
package, or the wheel that is sent along (docs/pipeline-cluster.md).
"""

from __future__ import annotations

from pipeline.cli import main

if __name__ == "__main__":
    main()
