"""What other projects' compiled code cimports to move bytes and to run handlers. Everything here is
defined elsewhere; `wirespeed/core.pxd` says what holds for all of it."""

from wirespeed.transport.fd cimport FdLink
from wirespeed.transport.link cimport Endpoint, Link
from wirespeed.transport.taskpool cimport Completion, Running, TaskPool
