from wirespeed import config as config
from wirespeed import core as core
from wirespeed import errors as errors
from wirespeed import transport as transport
from wirespeed import types as types
from wirespeed.client.answering.progress import report_progress as report_progress
from wirespeed.client.client import Client as Client
from wirespeed.client.sync import SyncClient as SyncClient
from wirespeed.client.targets import Http as Http
from wirespeed.client.targets import Socket as Socket
from wirespeed.client.targets import WebSocket as WebSocket
from wirespeed.client.tasks.calls import TASKS as TASKS
from wirespeed.client.timeouts import CLIENT_DEFAULT as CLIENT_DEFAULT
from wirespeed.config.clients import ClientGroup as ClientGroup
from wirespeed.limits import Limits as Limits
from wirespeed.peer.http.event_store import MemoryEventStore as MemoryEventStore
from wirespeed.peer.http.sqlite_events import SQLiteEventStore as SQLiteEventStore
from wirespeed.schema.python_types import HeaderParam as HeaderParam
from wirespeed.server.context import Context as Context
from wirespeed.server.dependencies.provider import Depends as Depends
from wirespeed.server.extensions import Extension as Extension
from wirespeed.server.server import Server as Server
from wirespeed.tool_search import ToolSearch as ToolSearch
from wirespeed.transport.child.command import ProcessLimits as ProcessLimits
from wirespeed.transport.child.command import Stdio as Stdio
from wirespeed.transport.http.options import EventStore as EventStore
from wirespeed.transport.http.options import HttpOptions as HttpOptions
from wirespeed.transport.http.routes import HttpResponse as HttpResponse
from wirespeed.transport.net.serve import run as run
from wirespeed.transport.net.serve import serve as serve
from wirespeed.transport.options import HttpRequest as HttpRequest
from wirespeed.transport.options import ListenOptions as ListenOptions
from wirespeed.transport.options import Refusal as Refusal
from wirespeed.transport.options import User as User

__version__: str

def get_include() -> str: ...
