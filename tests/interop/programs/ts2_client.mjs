// The client of @modelcontextprotocol/client 2.x goes through the steps of `steps.mjs`.
//
//     ts2_client.mjs JOB    (a file of JSON: sessions to hold, and where to report)
import {
  Client,
  ProtocolError,
  SdkError,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { z } from 'zod';
import { run, textOf } from './steps.mjs';

const TASKS =
  'no tasks of its own; it refuses results that are one, but sends requests about them, as a test does';
const CAPABILITIES = {
  sampling: { tools: {} },
  elicitation: { form: {}, url: {} },
  roots: { listChanged: true },
};
const WITH_TASKS = {
  elicitation: { form: {} },
  extensions: { 'io.modelcontextprotocol/tasks': {} },
};
// without a cursor the lists walk all the pages themselves
const every = { cacheMode: 'refresh' };

function answer(client, asked) {
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    asked.elicitation = params;
    if (params.mode === 'url') return { action: 'accept' };
    return { action: 'accept', content: { name: 'Ada', age: 36 } };
  });
  client.setRequestHandler('sampling/createMessage', async ({ params }) => {
    asked.sampling = params;
    const answer = { role: 'assistant', model: 'm-1' };
    if (params.tools) {
      const use = { type: 'tool_use', id: 'u-1', name: 'look_up', input: { q: 1 } };
      return { ...answer, stopReason: 'toolUse', content: [use] };
    }
    return { ...answer, stopReason: 'endTurn', content: { type: 'text', text: 'Paris' } };
  });
  client.setRequestHandler('roots/list', async () => ({
    roots: [{ uri: 'file:///work', name: 'work' }],
  }));
}

// The tasks of 2026-07-28. The client refuses every result that says it is a task, but sends requests
// of methods that it does not know: so the refused results are taken off the wire.
function tasksOf(client) {
  const made = [];
  const start = async (name) => {
    const { transport } = client;
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
      if (message.result?.resultType === 'task') {
        made.push(message.result);
        message = { ...message, result: { resultType: 'complete', content: [] } };
      }
      deliver(message, extra);
    };
    await client.callTool({ name, arguments: {} });
    transport.onmessage = deliver;
    return made.pop();
  };
  const send = (method, taskId, more = {}) =>
    client.request({ method, params: { taskId, ...more } }, z.looseObject({}));
  return {
    by_itself: async (name) => {
      try {
        await client.callTool({ name, arguments: {} });
      } catch (error) {
        return error instanceof SdkError ? `${error.code} ${error.data.resultType}` : `${error}`;
      }
    },
    task: async (name) => {
      const { taskId, pollIntervalMs } = await start(name);
      for (;;) {
        const task = await send('tasks/get', taskId);
        if (task.status === 'completed') return textOf(task.result);
        if (task.status === 'input_required') {
          const answer = { action: 'accept', content: { name: 'Ada' } };
          const keys = Object.keys(task.inputRequests);
          const inputResponses = Object.fromEntries(keys.map((key) => [key, answer]));
          await send('tasks/update', taskId, { inputResponses });
        }
        await new Promise((resolve) => setTimeout(resolve, pollIntervalMs));
      }
    },
    endless: async () => {
      const { taskId } = await start('endless');
      const report = { working: (await send('tasks/get', taskId)).status };
      await send('tasks/cancel', taskId);
      do {
        report.cancelled = (await send('tasks/get', taskId)).status;
      } while (report.cancelled === 'working');
      return report;
    },
    unknown_task: () => send('tasks/get', "nobody's"),
  };
}

await run((job, notes) => {
  const client = new Client(
    { name: 'peer', version: '1' },
    {
      versionNegotiation: { mode: job.mode.startsWith('20') ? { pin: job.mode } : job.mode },
      defaultCacheTtlMs: 0,
      ...(job.features ? { capabilities: CAPABILITIES } : {}),
      ...(job.tasks ? { capabilities: WITH_TASKS } : {}),
    }
  );
  client.onerror = notes.stray;
  if (job.features) answer(client, notes.asked);
  client.setNotificationHandler('notifications/message', notes.log);
  for (const kind of job.features ? ['tools', 'prompts', 'resources'] : ['tools']) {
    client.setNotificationHandler(`notifications/${kind}/list_changed`, () =>
      notes.event(kind).happened()
    );
  }
  client.setNotificationHandler('notifications/resources/updated', ({ params }) =>
    notes.event(params.uri).happened()
  );
  const transport = () => {
    if (job.url) return new StreamableHTTPClientTransport(new URL(job.url));
    const [command, ...args] = job.command;
    return new StdioClientTransport({ command, args });
  };
  const listen = (filter) => (peer.modern ? client.listen(filter) : null);
  const peer = {
    tasks: tasksOf(client),
    code: (error) => (error instanceof ProtocolError ? error.code : undefined),
    connect: async () => {
      await client.connect(transport());
      peer.version = client.getNegotiatedProtocolVersion();
      peer.modern = client.getProtocolEra() === 'modern';
      peer.absent = { tasks: peer.modern ? TASKS : 'no tasks of 2025-11-25' };
      peer.about = {
        server_info: client.getServerVersion() ?? null,
        instructions: client.getInstructions() ?? null,
        capabilities: client.getServerCapabilities(),
      };
    },
    close: () => client.close(),
    call: (params, options) => client.callTool(params, options),
    ping: () => client.ping(),
    logged: async (level) => {
      if (!peer.modern) await client.setLoggingLevel(level);
      const _meta = peer.modern ? { 'io.modelcontextprotocol/logLevel': level } : undefined;
      await client.callTool({ name: 'chatter', arguments: {}, ...(_meta ? { _meta } : {}) });
    },
    // a request of its own: listTools walks all the pages
    firstPage: () => client.request({ method: 'tools/list', params: {} }),
    tools: async () => (await client.listTools(undefined, every)).tools,
    prompts: async () => (await client.listPrompts(undefined, every)).prompts,
    resources: async () => (await client.listResources(undefined, every)).resources,
    templates: async () =>
      (await client.listResourceTemplates(undefined, every)).resourceTemplates,
    read: async (uri) => (await client.readResource({ uri }, every)).contents,
    getPrompt: (params) => client.getPrompt(params),
    complete: async (params) => (await client.complete(params)).completion.values,
    grown: async (kind, args) => {
      notes.forget(kind);
      const listening = await listen({ [`${kind}ListChanged`]: true });
      await client.callTool({ name: 'grow', arguments: args });
      await notes.event(kind).promise;
      await listening?.close();
    },
    touched: async (uri) => {
      notes.forget(uri);
      const listening = await listen({ resourceSubscriptions: [uri] });
      if (!peer.modern) await client.subscribeResource({ uri });
      await client.callTool({ name: 'touch', arguments: { uri } });
      await notes.event(uri).promise;
      await listening?.close();
      if (!peer.modern) await client.unsubscribeResource({ uri });
      return uri;
    },
  };
  return peer;
});
