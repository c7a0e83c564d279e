// The tasks extension of 2026-07-28 with @modelcontextprotocol/client 2.x: what `test_tasks.py`
// describes. The client refuses every result that says it is a task, but sends requests of methods
// that it does not know: so the rest is written here, with the refused results taken off the wire.
//
//     ts2_tasks_client.mjs command args…    (prints a report as JSON)
import { Client, ProtocolError, SdkError } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { z } from 'zod';

const [command, ...args] = process.argv.slice(2);
const client = new Client(
  { name: 'peer', version: '1' },
  {
    versionNegotiation: { mode: 'auto' },
    capabilities: { elicitation: { form: {} }, extensions: { 'io.modelcontextprotocol/tasks': {} } },
  }
);
const transport = new StdioClientTransport({ command, args });
await client.connect(transport);
const report = {};
try {
  await client.callTool({ name: 'slow', arguments: {} });
} catch (error) {
  report.by_itself = error instanceof SdkError ? `${error.code} ${error.data.resultType}` : `${error}`;
}

const made = [];
const deliver = transport.onmessage;
transport.onmessage = (message, extra) => {
  if (message.result?.resultType === 'task') {
    made.push(message.result);
    message = { ...message, result: { resultType: 'complete', content: [] } };
  }
  deliver(message, extra);
};
const start = async (name) => {
  await client.callTool({ name, arguments: {} });
  return made.pop();
};
const send = (method, taskId, more = {}) =>
  client.request({ method, params: { taskId, ...more } }, z.looseObject({}));
const run = async (name) => {
  const { taskId, pollIntervalMs } = await start(name);
  for (;;) {
    const task = await send('tasks/get', taskId);
    if (task.status === 'completed') return task.result.content[0].text;
    if (task.status === 'input_required') {
      const answer = { action: 'accept', content: { name: 'Ada' } };
      const keys = Object.keys(task.inputRequests);
      const inputResponses = Object.fromEntries(keys.map((key) => [key, answer]));
      await send('tasks/update', taskId, { inputResponses });
    }
    await new Promise((resolve) => setTimeout(resolve, pollIntervalMs));
  }
};
report.slow = await run('slow');
report.ask = await run('ask');
const { taskId } = await start('endless');
report.working = (await send('tasks/get', taskId)).status;
await send('tasks/cancel', taskId);
do {
  report.cancelled = (await send('tasks/get', taskId)).status;
} while (report.cancelled === 'working');
try {
  await send('tasks/get', "nobody's");
} catch (error) {
  report.unknown = error instanceof ProtocolError ? error.code : `${error}`;
}
await client.close();
console.log(JSON.stringify(report));
process.exit(0);
