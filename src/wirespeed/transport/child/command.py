"""`Stdio`: a command that is launched as a child, as a plain value; as whom the child runs, and how
much it may use.

The parent has threads, so nothing of Python runs between fork and exec: the system's own launcher
changes the user, and a shell sets the limits before it becomes the program.
"""

import errno
import grp
import inspect
import io
import math
import os
import pwd
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from wirespeed._exports import set_public_home
from wirespeed.protocol.structs import ExplainedStruct
from wirespeed.transport.options import Names

StderrTarget: TypeAlias = "str | os.PathLike[str] | IO[bytes] | IO[str] | Callable[[str], object]"

# The official SDKs let a server inherit the first six. The others change the form of text and
# times, and the places of temporary files and CA certificates. No variable here loads code (LD_*,
# PYTHONPATH, NODE_OPTIONS), and none may hold a secret (tokens, *_PROXY URLs).
SAFE_ENV = (
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
SAFE_ENV_PREFIXES = ("LC_",)

# The token of this process for servers elsewhere. A child never inherits it.
_TOKEN = "WIRESPEED_TOKEN"

# The count for restart=True.
_RESTARTS = 5


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of each process of a server, those of ``setrlimit``. None leaves a limit as it is.
    Processes that a server starts inherit its limits.

    Attributes:
        memory: Bytes of address space.
        cpu: Seconds of processor time; then the process is killed.
        files: Open files.
        processes: Processes and threads of the user, of all its programs together. Root has none.
    """

    memory: int | None = None
    cpu: int | None = None
    files: int | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value < 1 << 62):
                raise ValueError(f"{name} is a count of at least 1, not {value!r}")


def safe_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the part of ``environ`` (default ``os.environ``) that a server inherits.

    Exported shell functions (values that start with ``() ``) are left out.
    """
    source = os.environ if environ is None else environ
    return {
        name: value
        for name, value in source.items()
        if (name in SAFE_ENV or name.startswith(SAFE_ENV_PREFIXES)) and not value.startswith("() ")
    }


class _Options(msgspec.Struct, metaclass=ExplainedStruct, frozen=True, kw_only=True):
    stderr: StderrTarget = "inherit"
    inherit_env: bool = False
    restart: int = 0
    shutdown_grace: float = 2.0
    shown: Sequence[str] | None = None
    user: str | None = None
    group: str | None = None
    limits: ProcessLimits | None = None


class Stdio(_Options, frozen=True):
    """A server that is launched as a child and reached through its stdin and stdout.

    command
        The program: a name that is looked up on the child's ``PATH``, or a path. No shell
        runs it.
    args
        Its arguments, a sequence of strings or paths.
    env
        Variables for the child, merged over :func:`safe_environment` (or over the whole
        environment if ``inherit_env`` is true). Values never appear in ``repr`` or errors.
    cwd
        Its working directory; None for the caller's.
    stderr
        The target of its stderr: ``"inherit"`` (the caller's own), ``"discard"``, a path (the
        file is appended to), an open file, or a function that is called with each line as
        ``str``. All but ``"inherit"`` keep the last lines for error messages.
    restart
        How many times in a row a crashed server is started again: 0 never, True for 5.
    shutdown_grace
        Seconds that the server has to exit after its stdin was closed, and again after
        SIGTERM, before it is killed.
    shown
        The command and its arguments as errors, logs and ``repr`` show them, where the
        real ones hold a secret; None for the real ones.

    user
        The name of the user that it runs as, with the groups of this user; ``HOME`` and the
        like are this user's. It needs root. None for the caller's.
    group
        The name of its group, in place of the user's.
    limits
        How much it may use; None for the caller's own limits.

    Raises TypeError or ValueError for an argument of the wrong type or value.
    """

    command: str | os.PathLike[str]
    args: Iterable[str | os.PathLike[str]] = ()
    env: Mapping[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.args, (str, bytes, os.PathLike)):
            raise TypeError(
                f"args must be a sequence of strings, not one {type(self.args).__name__}: "
                "write a list, as in ['-m', 'package']"
            )
        restart, grace = self.restart, self.shutdown_grace
        if not isinstance(restart, int) or restart < 0:
            raise ValueError(f"restart must be True, False or a count, not {restart!r}")
        if not (isinstance(grace, (int, float)) and 0 <= grace < math.inf):
            raise ValueError(f"shutdown_grace must be seconds >= 0, not {grace!r}")
        # Equal targets compare equal, whatever form their arguments had.
        for name, value in {
            "command": _text("command", self.command),
            "args": tuple(_text(f"args[{i}]", arg) for i, arg in enumerate(self.args)),
            "env": None if self.env is None else _environment(self.env),
            "cwd": None if self.cwd is None else _text("cwd", self.cwd),
            "stderr": _stderr(self.stderr),
            "restart": _RESTARTS if restart is True else int(restart),
            "shutdown_grace": float(grace),
            "shown": None if self.shown is None else tuple(self.shown),
        }.items():
            force_setattr(self, name, value)
        if not self.command:
            raise ValueError("command is empty")
        if self.cwd == "":
            raise ValueError("cwd is empty; leave it out for the caller's directory")

    def __hash__(self) -> int:
        return hash((self.command, self.args, self.cwd))

    @property
    def argv(self) -> list[str]:
        """The command and its arguments."""
        return [os.fspath(part) for part in (self.command, *self.args)]

    @property
    def command_line(self) -> str:
        """The command as a user types it in a shell, for people to read."""
        return shlex.join(self.shown or self.argv)

    @property
    def directory(self) -> str:
        """The absolute working directory of the child."""
        return os.path.abspath(self.cwd or ".")

    def environment(self) -> dict[str, str]:
        """Return the complete environment of the child, from the variables of this moment.
        ValueError: there is no such user."""
        base = dict(os.environ) if self.inherit_env else safe_environment()
        base.pop(_TOKEN, None)
        if self.user is not None:
            account = account_of(self.user)
            base |= {"HOME": account.pw_dir, "SHELL": account.pw_shell}
            base |= dict.fromkeys(("LOGNAME", "USER"), self.user)
        return base | dict(self.env or {})

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows env
        command, *args = self.shown or self.argv
        parts: list[tuple[str, Any]] = [("", command)]
        if args:
            parts.append(("", args))
        if self.env:
            parts.append(("env", Names(self.env)))
        default = Stdio("default")
        return parts + [
            (name, value)
            for name in (
                *("cwd", "stderr", "inherit_env", "restart", "shutdown_grace"),
                *("user", "group", "limits"),
            )
            if (value := getattr(self, name)) != getattr(default, name)
        ]

    def __repr__(self) -> str:
        parts = [f"{key}={value!r}" if key else repr(value) for key, value in self.__rich_repr__()]
        return f"Stdio({', '.join(parts)})"


def _text(what: str, value: object) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string or a path, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{what} contains a null character")
    return value


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(env, Mapping):
        raise TypeError(f"env must be a mapping of strings, not {type(env).__name__}")
    for name, value in env.items():
        if not isinstance(name, str):
            raise TypeError(f"env has a key that is not a string but {type(name).__name__}")
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"env has a bad variable name {name!r}")
        if not isinstance(value, str):
            raise TypeError(f"env[{name!r}] must be a string, not {type(value).__name__}")
        if "\0" in value:
            raise ValueError(f"env[{name!r}] contains a null character")
    return dict(env)


def _stderr(target: StderrTarget) -> StderrTarget:
    if isinstance(target, str):
        # A misspelt word must not silently become the name of a log file.
        if target not in ("inherit", "discard") and "/" not in target and "." not in target:
            raise ValueError(
                f'stderr must be "inherit", "discard", a function, a file or a path; '
                f'for a file called {target!r} write "./{target}"'
            )
        return _text("stderr", target)
    if isinstance(target, os.PathLike):
        return _text("stderr", target)
    if isinstance(target, io.IOBase) or callable(getattr(target, "write", None)):
        return target
    if inspect.iscoroutinefunction(target):
        raise TypeError("the stderr function must be a plain function, not a coroutine function")
    if callable(target):
        return target
    raise TypeError(
        'stderr must be "inherit", "discard", a function, a file or a path, '
        f"not {type(target).__name__}"
    )


def account_of(user: str) -> pwd.struct_passwd:
    """The account of a user. ValueError: there is none."""
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise ValueError(f"there is no user {user!r}") from None


def identity_of(target: Stdio) -> dict[str, Any]:
    """The arguments of ``subprocess.Popen`` for the user and the groups of a child: the groups of
    the parent are not its own. ValueError: there is no such user or group. PermissionError: this
    process is not root's."""
    gid = None
    if target.group is not None:
        try:
            gid = grp.getgrnam(target.group).gr_gid
        except KeyError:
            raise ValueError(f"there is no group {target.group!r}") from None
    if target.user is None:
        return {} if gid is None else _checked({"group": gid, "extra_groups": []})
    account = account_of(target.user)
    if gid is None:
        gid = account.pw_gid
    groups = os.getgrouplist(target.user, gid)
    return _checked({"user": account.pw_uid, "group": gid, "extra_groups": groups})


def _checked(identity: dict[str, Any]) -> dict[str, Any]:
    # Others with CAP_SETUID can change the user, but the child keeps their groups and capabilities.
    if os.geteuid() != 0:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
    return identity


def command_of(target: Stdio, environ: Mapping[str, str]) -> list[str]:
    """The command and its arguments, after a shell if there are limits.

    FileNotFoundError: there is no such program, which the shell could only say to its stderr.
    ValueError: a limit is above that of this process.
    """
    limits = target.limits
    if limits is None:
        return target.argv
    import resource
    import shutil

    numbers = {
        "memory": resource.RLIMIT_AS,
        "cpu": resource.RLIMIT_CPU,
        "files": resource.RLIMIT_NOFILE,
        "processes": resource.RLIMIT_NPROC,
    }
    for name, number in numbers.items():
        wanted, (_, most) = getattr(limits, name), resource.getrlimit(number)
        if wanted is not None and most != resource.RLIM_INFINITY and wanted > most:
            raise ValueError(f"the limit of {name} is above that of this process, {most}")
    command, *rest = target.argv
    at = os.path.join(target.directory, command) if "/" in command else command
    found = shutil.which(at, path=environ.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    steps = []
    if limits.memory is not None:
        steps.append(f"ulimit -v {-(-limits.memory // 1024)}")
    if limits.cpu is not None:
        steps.append(f"ulimit -t {limits.cpu}")
    if limits.files is not None:
        steps.append(f"ulimit -n {limits.files}")
    if limits.processes is not None:  # the shells differ in the letter
        n = limits.processes
        steps.append(f"if (ulimit -u {n}) 2>&-; then ulimit -u {n}; else ulimit -p {n}; fi")
    return ["/bin/sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh", found, *rest]


set_public_home(globals())
