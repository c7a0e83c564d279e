"""The grammar that commands share: click's classes with the errors of this program, and options.

A command may have the words of another command after ``--``.
"""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from wirespeed.cli import failures
from wirespeed.cli.failures import Exit, usage

F = TypeVar("F", bound=Callable[..., Any])

_ERAS = ("auto", "legacy", "modern")
# A copy of wirespeed.protocol.revisions.LOG_LEVELS, whose import would take longer than --help.
# A test compares the two.
LOG_LEVELS = (
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency",
)  # fmt: skip
SERVE_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")  # those of `logging`
LOG_FORMATS = ("text", "json")


# -- click's classes, with our errors --------------------------------------------------------------


class Command(click.Command):
    """A command that returns its exit code, and reports failures of its work."""

    def invoke(self, ctx: click.Context) -> Any:
        json = bool(ctx.params.get("as_json"))
        debug = bool(ctx.params.pop("debug", False))
        seen = not ctx.params.get("quiet_server", True)
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
            return int(status)
        except click.exceptions.Exit:
            raise
        except (Exception, KeyboardInterrupt) as exc:
            lost = failures.output_lost(exc) if isinstance(exc, OSError) else None
            if lost is not None:
                return lost
            hint(exc, ctx)
            return failures.report(exc, json=json, debug=debug, seen_stderr=seen)


def hint(exc: BaseException, ctx: click.Context) -> None:
    """Add the ``--help`` command to the text of a usage error."""
    if isinstance(exc, failures.Failure) and exc.code == Exit.USAGE:
        exc.args = (f"{exc}; see {ctx.command_path} --help",)


class TargetCommand(Command):
    """A command of this program whose arguments may contain ``-- COMMAND``.

    If ``ends`` is true, the last ``--`` ends COMMAND and further arguments follow. Otherwise
    COMMAND extends to the end of the line. COMMAND itself may contain ``--``. Its words are in
    ``ctx.meta["wirespeed.command"]``, which is None without COMMAND.
    """

    ends = False

    def lasts(self, words: list[str]) -> bool:
        """Return whether COMMAND behind a single ``--`` extends to the end of the line, where these
        words are before it."""
        return not self.ends

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, command = args, None
        if "--" in args:
            first = args.index("--")
            last = len(args) - 1 - args[::-1].index("--")
            if not self.ends or (last == first and self.lasts(args[:first])):
                words, command = args[:first], args[first + 1 :]
            elif last > first:
                words, command = [*args[:first], *args[last + 1 :]], args[first + 1 : last]
            # a single -- only ends the options, as usual
        ctx.meta["wirespeed.command"] = command
        return super().parse_args(ctx, list(words))


class CallCommand(TargetCommand):
    """``call`` and the like, whose further words follow COMMAND."""

    ends = True


class WatchCommand(CallCommand):
    """A command with a TARGET whose further words may be missing: a single ``--`` begins
    COMMAND."""

    def lasts(self, words: list[str]) -> bool:
        """Nothing needs to follow COMMAND."""
        return True


class InspectCommand(CallCommand):
    """``inspect``, which needs a NAME, but not with ``--web``."""

    def lasts(self, words: list[str]) -> bool:
        """Whether no NAME follows."""
        return "--web" in words


# What people of other command lines type, and the command here.
_SYNONYMS = {
    "add": "install", "config": "install", "develop": "dev", "discovery": "discover",
    "elicit": "call", "get": "read", "ls": "list", "prompts": "list", "ping": "info",
    "remove": "uninstall", "resources": "list", "run": "serve", "start": "serve", "show": "inspect",
    "tools": "list", "use": "call", "version": "info", "watch": "subscribe",
}  # fmt: skip


# The sections of --help.
_SECTIONS = (
    ("Serve", ("serve", "dev", "proxy", "top")),
    ("Use a server", ("list", "inspect", "call", "read", "prompt", "complete", "subscribe",
                      "tasks", "skill", "info", "login", "logout")),
    ("Hosts", ("install", "uninstall", "discover")),
    ("Measure", ("bench", "record", "bench-target", "demo")),
)  # fmt: skip


class CommandGroup(click.Group):
    """The commands in their order of use. The error of an unknown command names a similar one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in sections."""
        rest = dict(self.commands)
        sections = [
            (title, [rest.pop(n) for n in names if n in rest]) for title, names in _SECTIONS
        ]
        sections.append(("More", list(rest.values())))
        width = max(map(len, self.commands))
        for title, commands in sections:
            rows = [
                (f"{command.name:{width}}", command.get_short_help_str(formatter.width - width - 6))
                for command in commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.commands, n=1)
            synonym = _SYNONYMS.get(name.lower())
            if synonym is not None and synonym in self.commands:
                near = [synonym]
            guess = f"did you mean {near[0]}?" if near else f"there are {', '.join(self.commands)}"
            raise click.UsageError(f"there is no command {name!r}: {guess}", ctx)
        return super().resolve_command(ctx, args)


# -- options ---------------------------------------------------------------------------------------


def complete_target(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Let the shell complete a file's name, or a server of a configuration."""
    from wirespeed.cli import completion

    return completion.targets(incomplete)


def complete_words(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Let the shell complete a target, and the names that its server has."""
    from wirespeed.cli import completion

    return completion.words(ctx, incomplete)


def complete_host(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    """Let the shell complete the name of a host, then a file."""
    from wirespeed.cli import completion

    return completion.hosts(ctx, incomplete)


def seconds(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Check an option's seconds."""
    if value is not None and not 0 <= value <= 1e9:
        raise click.BadParameter("expected seconds, or 0 for no limit", ctx, param)
    return value


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
debug_option = click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
token_option = click.option(
    "--token",
    metavar="TOKEN",
    help="The bearer token. Process lists show it, so prefer the variable WIRESPEED_TOKEN.",
)
token_file_option = click.option(
    "--token-file", metavar="FILE", help="Read the bearer token from a file."
)


ca_option = click.option(
    "--ca", metavar="FILE", help="https://, wss://: trust these certificates (PEM) only."
)
HTTP_TARGET = "URL|FILE.json[#NAME]"


def takes(arguments: str, json: Callable[[Any], Any] = json_option) -> Callable[[F], F]:
    """Add the options of commands with a TARGET, and ``command``, the arguments after ``--``.

    json: The option that asks for JSON.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def passes(*args: Any, **kwargs: Any) -> Any:
            ctx = click.get_current_context()
            return function(*args, command=ctx.meta["wirespeed.command"], **kwargs)

        for option in (
            debug_option,
            click.option(
                "--quiet-server", is_flag=True, help="Show the server's stderr only if it fails."
            ),
            click.option(
                "--log-level",
                type=click.Choice(LOG_LEVELS),
                metavar="LEVEL",
                help=f"Ask for the server's log messages: {', '.join(LOG_LEVELS)}.",
            ),
            click.option(
                "--era",
                type=click.Choice(_ERAS),
                help="The protocol's era; by default detected (auto).",
            ),
            click.option("--lite", is_flag=True, help="The target speaks LiteMCP, not MCP."),
            ca_option,
            click.option(
                "--header",
                "headers",
                multiple=True,
                metavar="'NAME: VALUE'",
                help="HTTP and WebSocket: send a header; may be repeated.",
            ),
            token_file_option,
            token_option,
            click.option(
                "--timeout",
                type=float,
                metavar="SECONDS",
                callback=seconds,
                help="Time for the handshake and for each request; default 60, 0 for no limit.",
            ),
            json,
            click.argument("words", nargs=-1, metavar=arguments, shell_complete=complete_words),
        ):
            passes = option(passes)
        return passes  # type: ignore[return-value]

    return decorate


trace_option = click.option(
    "--trace", is_flag=True, help="Show each message of the connection on stderr."
)


tracing_option = click.option(
    "--tracing",
    is_flag=True,
    help="Trace requests with OpenTelemetry, as the variables OTEL_… say.",
)
port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="The port of the page on 127.0.0.1; by default a free one.",
)


def asking_options(command: F) -> F:
    """Add the options of a command whose server may ask questions, and whose result may have
    images."""
    for option in reversed(
        (
            click.option(
                "--answer",
                "answers",
                multiple=True,
                metavar="JSON|accept|decline",
                help="Answer a question of the server; may be repeated, the last one answers all "
                "further questions. Without it, a terminal asks you.",
            ),
            click.option(
                "--sample-command",
                metavar="COMMAND",
                help="A program that answers for a model: the text is its stdin, the answer its "
                "stdout.",
            ),
            click.option(
                "--root",
                "roots",
                multiple=True,
                metavar="PATH",
                help="Name a directory to a server that asks; may be repeated.",
            ),
            click.option(
                "--save",
                "folder",
                metavar="FOLDER",
                help="Save images, sound and other bytes there, instead of showing images.",
            ),
            trace_option,
        )
    ):
        command = option(command)
    return command


def options_of(command: list[str] | None, word: str | None, settings: dict[str, Any]) -> Any:
    """Return the `wirespeed.cli.session.Options` of a command with a TARGET."""
    from wirespeed.cli.session import Options

    return Options(word, command, **settings)


def target_only(words: tuple[str, ...], command: list[str] | None, name: str) -> str | None:
    """Return the word that names the target; None if the target is a command."""
    if command is not None:
        if words:
            raise usage(f"give a TARGET or a command after --, not both ({words[0]!r})")
        return None
    if not words:
        raise usage("TARGET is missing")
    if len(words) > 1:
        if "://" in words[0]:  # the further arguments are not a program, and may hold a token
            raise usage("one TARGET is enough; there are further arguments after it")
        line = " ".join(words)
        raise usage(f"one TARGET is enough; to start a program: wirespeed {name} -- {line}")
    return words[0]


def tool_of(
    words: tuple[str, ...], command: list[str] | None, name: str
) -> tuple[str | None, str, str | None]:
    """Return the word that names the target, or None if it is a command, TOOL, and JSON or None."""
    word, tool, rest = named_in(words, command, name, "TOOL JSON")
    if len(rest) > 1:
        raise usage(f"unexpected {rest[1]!r} after JSON; quote JSON as one word, '{{\"a\": 1}}'")
    return word, tool, rest[0] if rest else None


def named_in(
    words: tuple[str, ...], command: list[str] | None, name: str, what: str
) -> tuple[str | None, str, list[str]]:
    """Return the word that names the target, or None if it is a command; the word behind it, and
    the words behind that. ``what``: those words in errors, as in ``TOOL JSON``."""
    rest = list(words)
    word = None
    first = what.partition(" ")[0]
    if command is None:
        if not rest:
            raise usage(
                f"TARGET and {first} are missing; a command as TARGET ends with a second --, as in "
                f"wirespeed {name} -- COMMAND… -- {what}"
            )
        word = rest.pop(0)
    if not rest:
        shows = "the tools" if first == "TOOL" else "what it has"
        raise usage(f"{first} is missing; wirespeed list TARGET shows {shows}")
    return word, rest.pop(0), rest


def further_in(
    words: tuple[str, ...], command: list[str] | None, name: str
) -> tuple[str | None, list[str]]:
    """Return the word that names the target, or None if it is a command, and the words behind
    it."""
    if command is not None:
        return None, list(words)
    if not words:
        raise usage(f"TARGET is missing, as in wirespeed {name} server.py")
    return words[0], list(words[1:])


def http_options(command: F) -> F:
    """Add the options of a command that listens for HTTP."""
    for option in reversed(
        (
            click.option(
                "--stateless",
                is_flag=True,
                help="HTTP: serve without sessions. --workers needs it for https://.",
            ),
            click.option(
                "--access-log",
                type=click.Choice(LOG_FORMATS),
                metavar="FORMAT",
                help="HTTP: write a line for each request to stderr, as text or json.",
            ),
            click.option(
                "--trusted-proxy",
                "trusted_proxies",
                multiple=True,
                metavar="ADDRESS",
                help="HTTP: the address or network of a proxy that names the "
                "client; may be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


def listening_options(command: F) -> F:
    """Add the options of a command that listens: those of `Settings`, and of the log."""
    for option in reversed(
        (
            click.option(
                "--workers",
                type=click.IntRange(1, 1024),
                default=1,
                metavar="N",
                help="The number of processes that share the port.",
            ),
            click.option(
                "--name",
                metavar="NAME",
                help="The name with which session ids begin, for load balancers.",
            ),
            click.option(
                "--certfile",
                metavar="FILE",
                help="https://, wss://: the certificate and its chain (PEM).",
            ),
            click.option(
                "--keyfile",
                metavar="FILE",
                help="TLS: the certificate's key (PEM), if it is in a file of its "
                "own. The password of an "
                "encrypted key is read from WIRESPEED_KEY_PASSWORD or the terminal.",
            ),
            token_option,
            token_file_option,
            click.option(
                "--origin",
                "origins",
                multiple=True,
                metavar="ORIGIN",
                help="HTTP, WebSocket: let pages of this origin connect, such as "
                "https://app.example; may be "
                "repeated.",
            ),
            click.option(
                "--host-name",
                "hosts",
                multiple=True,
                metavar="HOST",
                help="HTTP, WebSocket: the name in the URL that clients use; may be repeated.",
            ),
            click.option(
                "--card",
                metavar="URL",
                help="HTTP, experimental: show everyone who the servers are, at /server-card below "
                "their paths; URL is what clients have for this listener, without the paths.",
            ),
            click.option(
                "--max-connections",
                type=click.IntRange(1, 10_000_000),
                metavar="N",
                help="The most connections of each process.",
            ),
            click.option(
                "--log-level",
                type=click.Choice(SERVE_LOG_LEVELS),
                metavar="LEVEL",
                help="Log to stderr from this level on: "
                f"{', '.join(SERVE_LOG_LEVELS)}; default warning.",
            ),
            click.option(
                "--log-format",
                type=click.Choice(LOG_FORMATS),
                metavar="FORMAT",
                help="text, or json for one JSON object a line; default text.",
            ),
        )
    ):
        command = option(command)
    return command
