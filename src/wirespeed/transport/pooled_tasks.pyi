from typing import final

from wirespeed.transport.taskpool import TaskPool

@final
class PooledTasks(TaskPool): ...
