from wirespeed.peer.connection import DrainingConnection as DrainingConnection
from wirespeed.peer.connection import SessionConnection as SessionConnection
from wirespeed.peer.http.endpoint import StreamableHttp as StreamableHttp
from wirespeed.peer.http.exchange import McpExchange as McpExchange
from wirespeed.peer.http.sse import SseEndpoint as SseEndpoint
from wirespeed.peer.service import HttpService as HttpService
