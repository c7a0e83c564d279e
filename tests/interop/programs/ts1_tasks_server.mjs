// Tasks of 2025-11-25 on @modelcontextprotocol/sdk 1.x: what `test_tasks.py` describes.
import {
  InMemoryTaskMessageQueue,
  InMemoryTaskStore,
} from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';

const server = new McpServer(
  { name: 'tasks', version: '1' },
  {
    capabilities: { tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } },
    taskStore: new InMemoryTaskStore(),
    taskMessageQueue: new InMemoryTaskMessageQueue(),
  }
);
for (const [name, ms] of [
  ['slow', 50],
  ['endless', 30000],
]) {
  server.experimental.tasks.registerToolTask(
    name,
    { execution: { taskSupport: 'required' } },
    {
      createTask: async (extra) => {
        const { taskStore } = extra;
        const task = await taskStore.createTask({ ttl: 60000, pollInterval: 20 });
        setTimeout(() => {
          const result = { content: [{ type: 'text', text: 'done' }] };
          taskStore.storeTaskResult(task.taskId, 'completed', result).catch(() => {});
        }, ms).unref();
        return { task };
      },
      getTask: (extra) => extra.taskStore.getTask(extra.taskId),
      getTaskResult: (extra) => extra.taskStore.getTaskResult(extra.taskId),
    }
  );
}
await server.connect(new StdioServerTransport());
