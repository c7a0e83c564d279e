"""Names that compiled code of other projects cimports to move bytes and to run handlers. All is
defined elsewhere; `wirespeed/core.pxd` says what holds for all of it."""

from wirespeed.transport.fd cimport FdLink
from wirespeed.transport.link cimport Endpoint, Link
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool
