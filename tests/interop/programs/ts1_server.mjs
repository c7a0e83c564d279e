// The tools of our_server.py on @modelcontextprotocol/sdk 1.x.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { z } from 'zod';

const server = new McpServer(
  { name: 'interop', version: '1.2.3' },
  { instructions: 'Call the tools.', capabilities: { logging: {}, tools: { listChanged: true } } }
);
const cancelled = [];
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new Error('aborted'));
    });
  });

server.registerTool(
  'add',
  {
    description: 'Add two numbers.',
    inputSchema: { a: z.number().int(), b: z.number().int() },
    outputSchema: { result: z.number().int() },
  },
  async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } })
);
server.registerTool(
  'echo',
  { inputSchema: { text: z.string(), ms: z.number().int().default(0) } },
  async (args) => {
    await sleep(args.ms);
    return text(args.text);
  }
);
const colour = z.enum(['red', 'green']);
server.registerTool(
  'person',
  {
    inputSchema: {
      name: z.string(),
      age: z.number().int().default(30),
      colour: colour.default('red'),
      tags: z.array(z.string()).nullable().default(null),
    },
    outputSchema: { name: z.string(), age: z.number().int(), colour, tags: z.array(z.string()) },
  },
  async ({ name, age, colour, tags }) => {
    const value = { name, age, colour, tags: tags ?? [] };
    return { ...text(JSON.stringify(value)), structuredContent: value };
  }
);
server.registerTool('blocks', {}, async () => ({
  content: [
    { type: 'text', text: 'text' },
    { type: 'image', data: 'iVBORw0K', mimeType: 'image/png' },
    { type: 'audio', data: 'UklGRg==', mimeType: 'audio/wav' },
    { type: 'resource_link', uri: 'file:///link.txt', name: 'link', mimeType: 'text/plain' },
    {
      type: 'resource',
      resource: { uri: 'file:///a.txt', mimeType: 'text/plain', text: 'inside' },
    },
    { type: 'resource', resource: { uri: 'file:///b.bin', blob: 'AAECAw==' } },
  ],
}));
server.registerTool('fail', {}, async () => {
  throw new Error('boom');
});
const progress = async (extra, params) => {
  const progressToken = extra._meta?.progressToken;
  if (progressToken !== undefined) {
    await extra.sendNotification({
      method: 'notifications/progress',
      params: { progressToken, ...params },
    });
  }
};
server.registerTool('count', { inputSchema: { n: z.number().int() } }, async ({ n }, extra) => {
  for (let i = 1; i <= n; i++) {
    await progress(extra, { progress: i, total: n, message: `step ${i}` });
  }
  return text(String(n));
});
server.registerTool('chatter', {}, async () => {
  for (const level of ['debug', 'info', 'warning', 'error']) {
    await server.sendLoggingMessage({ level, data: { said: level }, logger: 'chatter' });
  }
  return text('said');
});
server.registerTool('wait', { inputSchema: { tag: z.string() } }, async ({ tag }, extra) => {
  extra.signal.addEventListener('abort', () => cancelled.push(tag));
  await progress(extra, { progress: 1 });
  await sleep(30000, extra.signal);
  return text('waited');
});
server.registerTool('noticed', {}, async () => text(JSON.stringify(cancelled)));
server.registerTool('grow', { inputSchema: { name: z.string() } }, async ({ name }) => {
  server.registerTool(name, { description: 'Came late.' }, async () => text('late'));
  return text(name);
});
server.registerTool('ask', {}, async () => {
  // the client is asked something, and then what it cannot answer (legacy)
  await server.server.ping();
  try {
    await server.server.listRoots();
  } catch (error) {
    return text(String(error.code));
  }
  return text('answered');
});
server.registerTool('whoami', {}, async () =>
  text(JSON.stringify({ client: server.server.getClientVersion()?.name ?? null }))
);

server.server.onerror = (error) => console.error(`error: ${error}`);
await server.connect(new StdioServerTransport());
