// What our_server.py offers, or with --features what `features.py` describes, on
// @modelcontextprotocol/server 2.x.
//
//     ts2_server.mjs [--features] [--legacy VERSION | --modern | --tasks] [--http]
//
// --legacy: no other version is negotiated by initialize. --modern: initialize is refused. --http:
// it listens for HTTP, with a server for each session of the legacy era, and prints the URL.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import {
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
  toWebRequest,
} from '@modelcontextprotocol/node';
import {
  McpServer,
  ProtocolError,
  ResourceNotFoundError,
  ResourceTemplate,
  Server,
  completable,
  createMcpHandler,
  inputRequired,
  isLegacyRequest,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';
import { adder, calls, common, text } from './tools.mjs';

const ABSENT = { pagination: 'McpServer lists everything on one page' };
const TASKS =
  'no tasks of its own; written on its handlers for other methods, as a test does, they work';
const HTTP = process.argv.includes('--http');
const options = process.argv.slice(2).filter((option) => option !== '--http');
const FEATURES = options[0] === '--features' && options.shift();
const [flag, version] = options;
// over HTTP each request of the modern era has a server of its own: what all of them have in common
const grown = [];
const late = new Set();
let notify;
const isModern = (ctx) => ctx.mcpReq.envelope !== undefined;

function build() {
  const server = new McpServer(
    { name: FEATURES ? 'features' : 'interop', version: '1.2.3' },
    {
      instructions: FEATURES ? 'Try every feature.' : 'Call the tools.',
      capabilities: {
        logging: {},
        tools: { listChanged: true },
        ...(FEATURES
          ? { prompts: { listChanged: true }, resources: { listChanged: true, subscribe: true } }
          : {}),
      },
      ...(flag === '--legacy' ? { supportedProtocolVersions: [version, '2026-07-28'] } : {}),
    }
  );
  let built = false;
  const sdk = {
    tool: (name, shape, run, more) => {
      server.registerTool(name, { inputSchema: z.object(shape), ...more }, run);
      if (!built) return;
      grown.push([name, shape, run, more]);
      notify?.toolsChanged();
    },
    progress: async (ctx, params) => {
      const progressToken = ctx.mcpReq._meta?.progressToken;
      if (progressToken === undefined) return;
      const method = 'notifications/progress';
      await ctx.mcpReq.notify({ method, params: { progressToken, ...params } });
    },
    log: (ctx, level) => ctx.mcpReq.log(level, { said: level }, 'chatter'),
    signal: (ctx) => ctx.mcpReq.signal,
    client: (ctx) =>
      ctx.mcpReq.envelope?.['io.modelcontextprotocol/clientInfo'] ??
      server.server.getClientVersion(),
    asks: server.server,
  };
  if (FEATURES) features(server, sdk);
  else calls(sdk);
  for (const tool of grown) sdk.tool(...tool);
  built = true;
  return server;
}

function features(server, sdk) {
  common(sdk, 5);
  const { tool } = sdk;
  const subscribed = new Set();
  // The client's answer, or the result that asks for it: `request` is that of the modern era.
  const ask = async (ctx, request, asking) => {
    if (!isModern(ctx)) return { answer: await asking() };
    const answer = ctx.mcpReq.inputResponses?.key;
    if (answer !== undefined) return { answer };
    return { required: inputRequired({ inputRequests: { key: request }, requestState: 'one' }) };
  };

  tool('absent', {}, async (_, ctx) => {
    const tasks = isModern(ctx) ? TASKS : 'no tasks of 2025-11-25';
    return text(JSON.stringify({ ...ABSENT, tasks }));
  });
  const [shape, run, more] = adder;
  tool('add', shape, run, {
    ...more,
    title: 'Adder',
    annotations: { title: 'Add up', readOnlyHint: true, destructiveHint: false },
    icons: [{ src: 'https://example.com/add.png', mimeType: 'image/png', sizes: ['48x48'] }],
    _meta: { 'example.com/kind': 'sum' },
  });
  const add = {
    tools: () => server.registerTool('late', {}, async () => text('late')),
    prompts: () => server.registerPrompt('late', {}, () => ({ messages: [] })),
    resources: () =>
      server.registerResource('late', 'text://late', {}, async (uri) => ({
        contents: [{ uri: uri.href, text: 'late' }],
      })),
  };
  for (const kind of late) add[kind]();
  tool('grow', { kind: z.string() }, async ({ kind }) => {
    add[kind]();
    late.add(kind);
    notify?.[`${kind}Changed`]();
    return text(kind);
  });
  tool('touch', { uri: z.string() }, async ({ uri }, ctx) => {
    if (notify && isModern(ctx)) notify.resourceUpdated(uri);
    else if (isModern(ctx) || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
    return text(uri);
  });
  tool('meta', {}, async (_, ctx) => ({
    ...text(String(ctx.mcpReq._meta?.['example.com/trace'])),
    _meta: { 'example.com/answer': 42 },
  }));

  tool('ask_form', {}, async (_, ctx) => {
    const params = {
      message: 'Who are you?',
      requestedSchema: {
        type: 'object',
        properties: {
          name: { type: 'string', title: 'Name' },
          age: { type: 'integer', minimum: 0 },
        },
        required: ['name', 'age'],
      },
    };
    const { answer, required } = await ask(ctx, inputRequired.elicit(params), () =>
      ctx.mcpReq.elicitInput({ mode: 'form', ...params })
    );
    return required ?? text(JSON.stringify({ action: answer.action, content: answer.content }));
  });
  tool('ask_url', {}, async (_, ctx) => {
    const params = { message: 'Sign in.', url: 'https://example.com/sign-in' };
    const { answer, required } = await ask(ctx, inputRequired.elicitUrl(params), () =>
      ctx.mcpReq.elicitInput({ mode: 'url', elicitationId: 'e-1', ...params })
    );
    return required ?? text(JSON.stringify({ action: answer.action }));
  });
  const question = {
    messages: [{ role: 'user', content: { type: 'text', text: 'Capital of France?' } }],
    maxTokens: 50,
  };
  tool('ask_sample', {}, async (_, ctx) => {
    const { answer, required } = await ask(ctx, inputRequired.createMessage(question), () =>
      ctx.mcpReq.requestSampling(question)
    );
    return required ?? text(JSON.stringify({ model: answer.model, text: answer.content.text }));
  });
  tool('ask_sample_tools', {}, async (_, ctx) => {
    const params = {
      ...question,
      tools: [{ name: 'look_up', inputSchema: { type: 'object' } }],
    };
    const { answer, required } = await ask(ctx, inputRequired.createMessage(params), () =>
      ctx.mcpReq.requestSampling(params)
    );
    if (required) return required;
    const blocks = Array.isArray(answer.content) ? answer.content : [answer.content];
    return text(JSON.stringify(blocks.map((block) => [block.type, block.name, block.input])));
  });
  tool('ask_roots', {}, async (_, ctx) => {
    const { answer, required } = await ask(ctx, inputRequired.listRoots(), () =>
      server.server.listRoots()
    );
    return required ?? text(JSON.stringify(answer.roots.map((root) => [root.uri, root.name])));
  });

  server.registerResource(
    'hello',
    'text://hello',
    { title: 'Hello', description: 'A greeting.', mimeType: 'text/plain' },
    async (uri) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'Hello.' }] })
  );
  server.registerResource(
    'bytes',
    'blob://bytes',
    { description: 'Four bytes.', mimeType: 'application/octet-stream' },
    async (uri) => ({
      contents: [{ uri: uri.href, mimeType: 'application/octet-stream', blob: 'AAECAw==' }],
    })
  );
  server.registerResource(
    'item',
    new ResourceTemplate('item://{id}', {
      list: undefined,
      complete: { id: (value) => [`${value}0`, `${value}1`] },
    }),
    { description: 'An item.', mimeType: 'text/plain' },
    async (uri, { id }) => {
      if (!/^\d+$/.test(id)) throw new ResourceNotFoundError(uri.href);
      return { contents: [{ uri: uri.href, mimeType: 'text/plain', text: `item ${id}` }] };
    }
  );
  server.server.setRequestHandler('resources/subscribe', async ({ params }) => {
    subscribed.add(params.uri);
    return {};
  });
  server.server.setRequestHandler('resources/unsubscribe', async ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });

  const names = ['Ada', 'Alan', 'Bob'];
  server.registerPrompt(
    'greet',
    {
      title: 'Greeting',
      description: 'Greet somebody.',
      argsSchema: z.object({
        name: completable(z.string(), (value) => names.filter((name) => name.startsWith(value))),
        tone: completable(z.string(), (value, context) => [
          `${value} for ${context?.arguments?.name}`,
        ]).optional(),
      }),
    },
    ({ name, tone }) => ({
      messages: [
        { role: 'user', content: { type: 'text', text: `Greet ${name}, tone ${tone ?? 'warm'}.` } },
      ],
    })
  );
}

// The tasks of 2026-07-28, written on handlers for methods of one's own: what `test_tasks.py` describes.
const STAMP = '2026-07-28T00:00:00Z';
const QUESTION = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'Who are you?',
    requestedSchema: {
      type: 'object',
      properties: { name: { type: 'string' } },
      required: ['name'],
    },
  },
};
const shown = new Map();
const find = (taskId) => {
  if (!shown.has(taskId)) throw new ProtocolError(-32602, 'Unknown task');
  return shown.get(taskId);
};
const end = (task, text) => {
  delete task.inputRequests;
  task.status = 'completed';
  task.result = { content: [{ type: 'text', text }], resultType: 'complete' };
};

function buildTasks() {
  const server = new Server(
    { name: 'tasks', version: '1' },
    { capabilities: { tools: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } } }
  );
  server.setRequestHandler('tools/list', async () => ({
    tools: ['slow', 'endless', 'ask'].map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  server.setRequestHandler('tools/call', async ({ params }) => {
    const task = {
      taskId: `task-${shown.size + 1}`,
      status: 'working',
      createdAt: STAMP,
      lastUpdatedAt: STAMP,
      ttlMs: 60000,
      pollIntervalMs: 20,
    };
    const made = { ...task, resultType: 'task' };
    shown.set(task.taskId, task);
    if (params.name === 'ask') {
      Object.assign(task, { status: 'input_required', inputRequests: { name: QUESTION } });
    } else {
      setTimeout(() => {
        if (task.status === 'working') end(task, 'done');
      }, params.name === 'endless' ? 30000 : 50).unref();
    }
    return made;
  });
  const named = z.looseObject({ taskId: z.string() });
  server.setRequestHandler('tasks/get', { params: named }, async ({ taskId }) => find(taskId));
  server.setRequestHandler('tasks/update', { params: named }, async (params, ctx) => {
    const { name } = ctx.mcpReq.inputResponses ?? params.inputResponses;
    end(find(params.taskId), `${name.action} ${name.content?.name}`);
    return {};
  });
  server.setRequestHandler('tasks/cancel', { params: named }, async ({ taskId }) => {
    find(taskId).status = 'cancelled';
    return {};
  });
  return server;
}

const onerror = (error) => console.error(`error: ${error}`);

function listen() {
  const limits = { maxRequestBodySize: 1 << 23 };
  const handler = createMcpHandler(build, { legacy: 'reject', onerror, ...limits });
  const modern = toNodeHandler(handler, limits);
  ({ notify } = handler);
  const sessions = new Map();
  const body = async (request) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    return parts.length ? JSON.parse(Buffer.concat(parts).toString()) : undefined;
  };
  const http = createServer(async (request, response) => {
    const parsed = await body(request);
    const legacy = await isLegacyRequest(await toWebRequest(request, parsed));
    if (flag === '--modern' || !legacy) return modern(request, response, parsed);
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response, parsed);
  });
  http.listen(0, '127.0.0.1', () =>
    console.log(`http://127.0.0.1:${http.address().port}/mcp`)
  );
  process.on('SIGTERM', () => process.exit(0));
}

if (HTTP) listen();
else serveStdio(flag === '--tasks' ? buildTasks : build, { legacy: flag === '--modern' ? 'reject' : 'serve', onerror });
