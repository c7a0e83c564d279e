// The tools of our_server.py on @modelcontextprotocol/sdk 1.x.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { calls } from './tools.mjs';

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
    server.sendLoggingMessage({ level, data: { said: level }, logger: 'chatter' }),
  signal: (extra) => extra.signal,
  client: () => server.server.getClientVersion(),
  asks: server.server,
});
server.server.onerror = (error) => console.error(`error: ${error}`);
await server.connect(new StdioServerTransport());
