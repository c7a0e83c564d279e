"""A client on mcp 1 that answers as tasks: what `test_asked_tasks.py` describes.

python python1_asked_client.py command args…    (prints a report as JSON)
"""

import json
import sys
from typing import Any

import anyio
import mcp.types as types
from mcp import ClientSession, StdioServerParameters
from mcp.client.experimental.task_handlers import ExperimentalTaskHandlers
from mcp.client.stdio import stdio_client
from mcp.shared.experimental.tasks.in_memory_task_store import InMemoryTaskStore


class Tasks:
    def __init__(self, group: Any) -> None:
        self.group = group
        self.store = InMemoryTaskStore()

    async def work(self, metadata: Any, result: Any) -> Any:
        """Create a task; without a result it never ends by itself."""
        task = await self.store.create_task(metadata)

        async def end() -> None:
            await anyio.sleep(0.05)
            await self.store.store_result(task.taskId, result)
            await self.store.update_task(task.taskId, status="completed")

        if result is not None:
            self.group.start_soon(end)
        task.pollInterval = 20
        return types.CreateTaskResult(task=task)

    async def elicit(self, context: Any, params: Any, metadata: Any) -> Any:
        result = types.ElicitResult(action="accept", content={"name": "Ada"})
        return await self.work(metadata, result)

    async def sample(self, context: Any, params: Any, metadata: Any) -> Any:
        text = params.messages[0].content.text
        said = types.TextContent(type="text", text="Paris")
        result = types.CreateMessageResult(role="assistant", content=said, model="m-1")
        return await self.work(metadata, None if text == "endless" else result)

    async def get(self, context: Any, params: Any) -> Any:
        task = await self.store.get_task(params.taskId)
        return types.GetTaskResult(**task.model_dump())

    async def result(self, context: Any, params: Any) -> Any:
        result = await self.store.get_result(params.taskId)
        return types.GetTaskPayloadResult(**result.model_dump(exclude_none=True))

    async def listed(self, context: Any, params: Any) -> Any:
        tasks, cursor = await self.store.list_tasks(None if params is None else params.cursor)
        return types.ListTasksResult(tasks=tasks, nextCursor=cursor)

    async def cancel(self, context: Any, params: Any) -> Any:
        task = await self.store.update_task(params.taskId, status="cancelled")
        return types.CancelTaskResult(**task.model_dump())


async def main() -> dict[str, Any]:
    command = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    report: dict[str, Any] = {}

    async def plainly(*args: Any) -> Any:
        raise NotImplementedError  # all is asked as tasks

    async with anyio.create_task_group() as group:
        tasks = Tasks(group)
        handlers = ExperimentalTaskHandlers(
            get_task=tasks.get,
            get_task_result=tasks.result,
            list_tasks=tasks.listed,
            cancel_task=tasks.cancel,
            augmented_sampling=tasks.sample,
            augmented_elicitation=tasks.elicit,
        )
        async with (
            stdio_client(command) as (source, sink),
            ClientSession(
                source,
                sink,
                sampling_callback=plainly,
                elicitation_callback=plainly,
                experimental_task_handlers=handlers,
            ) as session,
        ):
            await session.initialize()
            for name in ("ask", "sample", "hurry", "listed"):
                result = await session.call_tool(name, {})
                report[name] = result.content[0].text
    return report


if __name__ == "__main__":
    print(json.dumps(anyio.run(main)))
