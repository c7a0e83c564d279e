// Tasks of 2025-11-25 with @modelcontextprotocol/sdk 1.x: what `test_tasks.py` describes.
//
//     ts1_tasks_client.mjs command args…    (prints a report as JSON)
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const client = new Client(
  { name: 'peer', version: '1' },
  { capabilities: { elicitation: { form: {} } } }
);
client.setRequestHandler(ElicitRequestSchema, async () => ({
  action: 'accept',
  content: { name: 'Ada' },
}));
await client.connect(new StdioClientTransport({ command, args }));
const report = {};
const { tools } = await client.listTools();
report.support = Object.fromEntries(
  tools.filter((tool) => tool.execution).map((tool) => [tool.name, tool.execution.taskSupport])
);
const { tasks } = client.experimental;
const start = async (name) => {
  const stream = tasks.callToolStream({ name, arguments: {} }, undefined, { task: { ttl: 60000 } });
  const first = (await stream.next()).value;
  return { task: first.task, stream };
};
const run = async (name) => {
  const { stream } = await start(name);
  for await (const message of stream) {
    if (message.type === 'result') return message.result.content[0].text;
    if (message.type === 'error') return String(message.error);
  }
};
report.slow = await run('slow');
report.ask = await run('ask');
const { task } = await start('endless');
report.working = (await tasks.getTask(task.taskId)).status;
report.listed = (await tasks.listTasks()).tasks.some((one) => one.taskId === task.taskId);
report.cancelled = (await tasks.cancelTask(task.taskId)).status;
await client.close();
console.log(JSON.stringify(report));
process.exit(0);
