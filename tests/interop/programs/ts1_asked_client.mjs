// A client on @modelcontextprotocol/sdk 1.x that answers as tasks: what `test_asked_tasks.py`
// describes.
//
//     ts1_asked_client.mjs command args…    (prints a report as JSON)
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { InMemoryTaskStore } from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
import { CreateMessageRequestSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const requests = { sampling: { createMessage: {} }, elicitation: { create: {} } };
const taskStore = new InMemoryTaskStore();
const client = new Client(
  { name: 'peer', version: '1' },
  {
    capabilities: {
      elicitation: { form: {} },
      sampling: {},
      tasks: { list: {}, cancel: {}, requests },
    },
    taskStore,
  }
);
// Create a task; without a result it never ends by itself.
const work = async (extra, result) => {
  const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: 20 });
  if (result) {
    setTimeout(() => extra.taskStore.storeTaskResult(task.taskId, 'completed', result), 50);
  }
  return { task };
};
client.setRequestHandler(ElicitRequestSchema, (request, extra) =>
  work(extra, { action: 'accept', content: { name: 'Ada' } })
);
client.setRequestHandler(CreateMessageRequestSchema, (request, extra) => {
  const [{ content }] = request.params.messages;
  const said = { type: 'text', text: 'Paris' };
  const result = { role: 'assistant', content: said, model: 'm-1' };
  return work(extra, content.text === 'endless' ? undefined : result);
});
await client.connect(new StdioClientTransport({ command, args }));
const report = {};
for (const name of ['ask', 'sample', 'hurry', 'listed']) {
  const result = await client.callTool({ name, arguments: {} });
  report[name] = result.content[0].text;
}
taskStore.cleanup();
await client.close();
console.log(JSON.stringify(report));
process.exit(0);
