"""The opening handshake of WebSocket: the request, the gate for clients, compression.

Frames: `wirespeed._core.framing.websocket`. Close codes: `wirespeed._core.framing.rfc6455`.
"""
