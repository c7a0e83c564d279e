// An echo server with the TypeScript SDK 1.x.
//
//     ts1_server.mjs stdio SETTING TOOLS
//     ts1_server.mjs http SETTING TOOLS PORT
//     ts1_server.mjs sse SETTING TOOLS PORT
//
// SETTING is documented or fastest. TOOLS is the number of tools beside echo.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  ListToolsRequestSchema,
  isInitializeRequest,
} from '@modelcontextprotocol/sdk/types.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { z } from 'zod';

const [kind, setting, tools, port] = process.argv.slice(2);

function documented() {
  const server = new McpServer({ name: 'echo', version: '1' });
  const echo = async ({ text }) => ({ content: [{ type: 'text', text }] });
  const inputSchema = { text: z.string().describe('The text to return.') };
  server.registerTool('echo', { description: 'Return the text.', inputSchema }, echo);
  for (let n = 1; n <= Number(tools); n++) {
    const description = `Tool number ${n}: returns the text that it is given.`;
    server.registerTool(`tool_${n}`, { description, inputSchema }, echo);
  }
  return server;
}

// The lower interface: schemas are written by hand, and arguments are not checked.
function fastest() {
  const server = new Server({ name: 'echo', version: '1' }, { capabilities: { tools: {} } });
  const inputSchema = {
    type: 'object',
    properties: { text: { type: 'string', description: 'The text to return.' } },
    required: ['text'],
  };
  const listed = [{ name: 'echo', description: 'Return the text.', inputSchema }];
  for (let n = 1; n <= Number(tools); n++) {
    const description = `Tool number ${n}: returns the text that it is given.`;
    listed.push({ name: `tool_${n}`, description, inputSchema });
  }
  server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools: listed }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }) => ({
    content: [{ type: 'text', text: params.arguments.text }],
  }));
  return server;
}

function listenDocumented() {
  const app = createMcpExpressApp();
  const sessions = new Map();
  app.all('/mcp', async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined && isInitializeRequest(request.body)) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await documented().connect(transport);
    }
    if (transport === undefined) {
      response.status(404).end();
      return;
    }
    await transport.handleRequest(request, response, request.body);
  });
  app.listen(Number(port), '127.0.0.1');
}

// With sessions: without them each request has a server of its own, which is slower.
function listenFastest() {
  const sessions = new Map();
  createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
        enableJsonResponse: true,
      });
      await fastest().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(port), '127.0.0.1');
}

// HTTP+SSE: a stream for each session, and the messages of the client by POST.
function listenEvents(make) {
  const sessions = new Map();
  createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://127.0.0.1');
    if (request.method === 'GET' && pathname === '/sse') {
      const transport = new SSEServerTransport('/messages', response);
      sessions.set(transport.sessionId, transport);
      response.on('close', () => sessions.delete(transport.sessionId));
      await make().connect(transport);
    } else if (request.method === 'POST' && sessions.has(searchParams.get('sessionId'))) {
      await sessions.get(searchParams.get('sessionId')).handlePostMessage(request, response);
    } else {
      response.writeHead(404).end();
    }
  }).listen(Number(port), '127.0.0.1');
}

if (kind === 'stdio') {
  await (setting === 'fastest' ? fastest() : documented()).connect(new StdioServerTransport());
} else if (kind === 'sse') listenEvents(setting === 'fastest' ? fastest : documented);
else if (setting === 'fastest') listenFastest();
else listenDocumented();
