// The tools of our_server.py on @modelcontextprotocol/sdk 1.x.
//
//     ts1_server.mjs [--tasks | --http | --sse]
//
// --http: it listens for HTTP, with a server for each session, and prints the URL.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import {
  InMemoryTaskMessageQueue,
  InMemoryTaskStore,
} from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { calls } from './tools.mjs';

function build() {
  const server = new McpServer(
    { name: 'interop', version: '1.2.3' },
    { instructions: 'Call the tools.', capabilities: { logging: {}, tools: { listChanged: true } } }
  );
  calls({
    tool: (name, inputSchema, run, more) =>
      server.registerTool(name, { inputSchema, ...more }, run),
    progress: async (extra, params) => {
      const progressToken = extra._meta?.progressToken;
      if (progressToken === undefined) return;
      const method = 'notifications/progress';
      await extra.sendNotification({ method, params: { progressToken, ...params } });
    },
    log: (extra, level) =>
      server.sendLoggingMessage(
        { level, data: { said: level }, logger: 'chatter' },
        extra.sessionId
      ),
    signal: (extra) => extra.signal,
    client: () => server.server.getClientVersion(),
    asks: server.server,
  });
  server.server.onerror = (error) => console.error(`error: ${error}`);
  return server;
}

// Tools that are only called as tasks of 2025-11-25: what `test_tasks.py` describes.
function buildTasks() {
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
  return server;
}

function listen() {
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response);
  });
  http.listen(0, '127.0.0.1', () =>
    console.log(`http://127.0.0.1:${http.address().port}/mcp`)
  );
  process.on('SIGTERM', () => process.exit(0));
}

function listenOld() {
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    const url = new URL(request.url, 'http://localhost');
    const transport = sessions.get(url.searchParams.get('sessionId'));
    if (request.method === 'POST' && transport !== undefined) {
      await transport.handlePostMessage(request, response);
    } else if (request.method === 'GET' && url.pathname === '/sse') {
      const opened = new SSEServerTransport('/messages', response);
      sessions.set(opened.sessionId, opened);
      await build().connect(opened);
    } else {
      response.writeHead(404).end();
    }
  });
  http.listen(0, '127.0.0.1', () =>
    console.log(`http://127.0.0.1:${http.address().port}/sse`)
  );
  process.on('SIGTERM', () => process.exit(0));
}

if (process.argv.includes('--http')) listen();
else if (process.argv.includes('--sse')) listenOld();
else {
  const server = process.argv.includes('--tasks') ? buildTasks() : build();
  await server.connect(new StdioServerTransport());
}
