"""A client, and what it gets: read by type checkers, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from wirespeed import CLIENT_DEFAULT, TASKS, Client, Stdio, SyncClient, report_progress
from wirespeed.config import AuthConfig, Era, ServerConfig, ServerUrl, Transport, loads
from wirespeed.errors import (
    CallTimeout,
    ChildExited,
    ConfigError,
    ConnectionClosed,
    ConnectionLost,
    Declined,
    DependencyError,
    HandlerFailed,
    HttpStatusError,
    InputNeeded,
    InvalidResponse,
    LaunchError,
    LimitExceeded,
    LocalError,
    MissingCapability,
    NotHonoured,
    ProtocolError,
    RemoteError,
    ResourceNotFound,
    SignatureError,
    SkillChanged,
    StartupError,
    TaskCancelled,
    ToolError,
    TransportError,
    Unsupported,
    UpgradeRefused,
    VersionMismatch,
    WirespeedError,
)
from wirespeed.skills import SkillApproval, SkillChanges
from wirespeed.types import (
    Accept,
    BlockingSubscription,
    BlockingTask,
    CallToolResult,
    ClientMiddleware,
    Discovery,
    ElicitParams,
    Event,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListRootsParams,
    ListToolsResult,
    LogMessage,
    OutboundNext,
    OutboundRequest,
    PromptArgument,
    RemoteSkill,
    ResourceRef,
    ResourceTemplateInfo,
    SampleParams,
    SampleResult,
    SkillFile,
    Subscription,
    TaskState,
    ToolTask,
)

TARGET = Stdio("server")


async def signed(request: OutboundRequest, call_next: OutboundNext) -> Any:
    assert_type(request.meta, dict[str, Any])
    assert_type(request.name, str | None)
    request.meta["office.example/user"] = "ann"
    request.timeout = CLIENT_DEFAULT
    request.method = "tools/call"  # type: ignore[misc]
    return await call_next(request)


MIDDLEWARE: list[ClientMiddleware] = [signed]


def on_log(message: LogMessage) -> None:
    assert_type(message.level, str)


async def on_sample(request: SampleParams) -> SampleResult:
    report_progress(1, 2, "thinks")
    if request.max_tokens > 1000:
        raise Declined("too long")
    return SampleResult(content="Hello", model="a-model")


async def lists() -> None:
    async with Client(TARGET, middleware=MIDDLEWARE, on_log=on_log, on_sample=on_sample) as client:
        assert_type(await client.discover(), Discovery)
        assert_type(await client.list_tools_page(), ListToolsResult)
        assert_type(await client.list_prompts_page(), ListPromptsResult)
        assert_type(await client.list_resources_page(), ListResourcesResult)
        assert_type(await client.list_resource_templates_page(), ListResourceTemplatesResult)
        assert_type(await client.list_resource_templates(), list[ResourceTemplateInfo])
        for prompt in await client.list_prompts():
            assert_type(prompt.arguments, list[PromptArgument])
        await client.complete(ResourceRef("office://{room}"), "room", "k")
        await client.list_tools(timeout=CLIENT_DEFAULT)
        await client.list_tools(timeout="1")  # type: ignore[arg-type]
        subscription = client.subscribe(tools=True)
        assert_type(subscription, Subscription)
        async with subscription as events:
            assert_type(await events.next_event(timeout=1), Event | None)


async def skills() -> None:
    async with Client(TARGET) as client:
        for skill in await client.list_skills(server="office"):
            assert_type(skill, RemoteSkill)
            assert_type((await skill.read()).text, str)
            approval = skill.approval()
            assert_type(approval, SkillApproval)
            assert_type(approval.changes(skill.entry), SkillChanges)
            await skill.to_directory("here")
        try:
            assert_type(await client.read_skill("skill://a/SKILL.md", "b.md"), SkillFile)
        except SkillChanged as exc:
            assert_type(exc.expected, str | None)


async def tasks() -> None:
    async with Client(TARGET, extensions=[TASKS]) as client:
        task = await client.start_tool("grind", {"bags": 3})
        assert_type(task, ToolTask)
        assert_type(task.id, str | None)
        async for state in task:
            assert_type(state, TaskState)
            assert_type(state.over, bool)
        assert_type(await task.result(), CallToolResult)
        assert_type(await client.list_tasks(), list[TaskState])


def blocking() -> None:
    with SyncClient(TARGET, timeout=5) as client:
        task = client.start_tool("grind", {"bags": 3})
        assert_type(task, BlockingTask)
        assert_type(task.result(), CallToolResult)
        with client.subscribe(tools=True) as events:
            assert_type(events, BlockingSubscription)


async def rounds() -> None:
    async with Client(TARGET, max_rounds=0) as client:
        try:
            await client.call_tool("book")
        except InputNeeded as needed:
            answers: dict[str, object] = {}
            for key, request in needed.requests.items():
                match request:
                    case ElicitParams():
                        assert_type(request.schema, dict[str, Any])
                        answers[key] = Accept({"row": 3})
                    case SampleParams():
                        answers[key] = SampleResult(content="Bye", model="a-model")
                    case ListRootsParams():
                        answers[key] = []
            result: CallToolResult = await client.resume(needed, answers)
            assert_type(result.text, str)
            assert_type(needed.task, ToolTask | None)


def configured() -> None:
    era: Era = "modern"
    transport: Transport = "stdio"
    config = loads('{"mcpServers": {}}')["time"]
    assert_type(config, ServerConfig)
    assert_type(config.client(), Client)
    assert_type(config.auth, AuthConfig | None)
    assert_type(config.urls, tuple[ServerUrl, ...])
    assert_type(ServerUrl("http://a/mcp", 2, percent=None).weight, float)
    assert (config.era, config.transport) == (era, transport)


async def failures() -> str:
    """Each group has what its exceptions have; the most general exception is the last."""
    try:
        async with Client(TARGET) as client:
            await client.call_tool("book")
    except (TaskCancelled, RemoteError) as error:
        assert_type(error.code, int)
        assert_type(error.resource_missing, bool)
    except CallTimeout as error:
        timeout: TimeoutError = error
        return str(timeout)
    except ToolError as error:
        assert_type(error.result, CallToolResult | None)
    except (ConnectionClosed, LimitExceeded, HandlerFailed, NotHonoured, Unsupported, StartupError):
        return "ended on this side"
    except LocalError as error:
        return str(error)
    except ChildExited as error:
        assert_type(error.status, int | None)
    except ConnectionLost as error:
        assert_type(error.code, int | None)
    except UpgradeRefused as error:
        assert_type(error.status, int)
        assert_type(error.headers, Mapping[str, str])
    except HttpStatusError as error:
        assert_type(error.status, int)
        assert_type(error.retry_after, float | None)
    except (LaunchError, TransportError) as error:
        return str(error)
    except VersionMismatch as error:
        assert_type(error.supported, list[str])
    except (InvalidResponse, ConfigError, DependencyError, SignatureError):
        return "wrong"
    except WirespeedError:
        raise
    return ""


def raised(uri: str | None) -> ProtocolError:
    if uri is None:
        return MissingCapability({"roots": {}})
    missing = ResourceNotFound(uri)
    assert_type(missing.uri, str | None)
    assert_type(missing.code, int)
    return missing
