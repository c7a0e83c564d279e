from wirespeed.tasks.model import Task as Task
from wirespeed.tasks.model import TaskLimit as TaskLimit
from wirespeed.tasks.model import TaskStateError as TaskStateError
from wirespeed.tasks.model import TaskStatus as TaskStatus
from wirespeed.tasks.sqlite import SQLiteTaskStore as SQLiteTaskStore
from wirespeed.tasks.store import MemoryTaskStore as MemoryTaskStore
from wirespeed.tasks.store import Page as Page
from wirespeed.tasks.store import TaskStore as TaskStore
