"""Topics and whole directories from one place to another.

`copy` copies records into topics of a directory or a cluster, each once; `export` makes a copy of a directory's files, on a disk or an object store.
"""

from fletchlog._copying import CopiedTopic, copy
from fletchlog._exporting import Exported, export

__all__ = ["CopiedTopic", "Exported", "copy", "export"]
