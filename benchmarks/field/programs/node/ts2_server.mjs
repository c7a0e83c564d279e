// An echo server with the TypeScript SDK 2.x.
//
//     ts2_server.mjs stdio SETTING TOOLS
//     ts2_server.mjs http SETTING TOOLS PORT
//
// SETTING is documented, fastest, or modern: as fastest, by the interface that serves 2026-07-28.
// TOOLS is the number of tools beside echo.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, Server, createMcpHandler } from '@modelcontextprotocol/server';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const [kind, setting, tools, port] = process.argv.slice(2);

function documented() {
  const server = new McpServer({ name: 'echo', version: '1' });
  const echo = async ({ text }) => ({ content: [{ type: 'text', text }] });
  const inputSchema = z.object({ text: z.string().describe('The text to return.') });
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
  server.setRequestHandler('tools/list', async () => ({ tools: listed }));
  server.setRequestHandler('tools/call', async ({ params }) => ({
    content: [{ type: 'text', text: params.arguments.text }],
  }));
  return server;
}

// With sessions: without them each request has a server of its own, which is slower.
function listenFastest() {
  const sessions = new Map();
  createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new NodeStreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
        enableJsonResponse: true,
      });
      await fastest().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(port), '127.0.0.1');
}

function listen(handler) {
  createServer(toNodeHandler(handler)).listen(Number(port), '127.0.0.1');
}

if (kind === 'stdio') {
  if (setting === 'fastest') await fastest().connect(new StdioServerTransport());
  else serveStdio(setting === 'modern' ? fastest : documented);
} else if (setting === 'fastest') listenFastest();
else if (setting === 'modern') listen(createMcpHandler(fastest, { responseMode: 'json' }));
else listen(createMcpHandler(documented));
