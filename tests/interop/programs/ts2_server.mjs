// The tools of our_server.py on @modelcontextprotocol/server 2.x.
//
//     ts2_server.mjs [--legacy VERSION | --modern]
//
// --legacy: no other version is negotiated by initialize. --modern: initialize is refused.
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const cancelled = [];
const [flag, version] = process.argv.slice(2);
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new Error('aborted'));
    });
  });
const progress = async (ctx, params) => {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken !== undefined) {
    await ctx.mcpReq.notify({
      method: 'notifications/progress',
      params: { progressToken, ...params },
    });
  }
};

function build() {
  const server = new McpServer(
    { name: 'interop', version: '1.2.3' },
    {
      instructions: 'Call the tools.',
      capabilities: { logging: {}, tools: { listChanged: true } },
      ...(flag === '--legacy' ? { supportedProtocolVersions: [version, '2026-07-28'] } : {}),
    }
  );
  server.registerTool(
    'add',
    {
      description: 'Add two numbers.',
      inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
      outputSchema: z.object({ result: z.number().int() }),
    },
    async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } })
  );
  server.registerTool(
    'echo',
    { inputSchema: z.object({ text: z.string(), ms: z.number().int().default(0) }) },
    async (args) => {
      await sleep(args.ms);
      return text(args.text);
    }
  );
  const colour = z.enum(['red', 'green']);
  server.registerTool(
    'person',
    {
      inputSchema: z.object({
        name: z.string(),
        age: z.number().int().default(30),
        colour: colour.default('red'),
        tags: z.array(z.string()).nullable().default(null),
      }),
      outputSchema: z.object({
        name: z.string(),
        age: z.number().int(),
        colour,
        tags: z.array(z.string()),
      }),
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
  server.registerTool('count', { inputSchema: z.object({ n: z.number() }) }, async ({ n }, ctx) => {
    for (let i = 1; i <= n; i++) {
      await progress(ctx, { progress: i, total: n, message: `step ${i}` });
    }
    return text(String(n));
  });
  server.registerTool('chatter', {}, async (ctx) => {
    for (const level of ['debug', 'info', 'warning', 'error']) {
      await ctx.mcpReq.log(level, { said: level }, 'chatter');
    }
    return text('said');
  });
  server.registerTool(
    'wait',
    { inputSchema: z.object({ tag: z.string() }) },
    async ({ tag }, ctx) => {
      ctx.mcpReq.signal.addEventListener('abort', () => cancelled.push(tag));
      await progress(ctx, { progress: 1 });
      await sleep(30000, ctx.mcpReq.signal);
      return text('waited');
    }
  );
  server.registerTool('noticed', {}, async () => text(JSON.stringify(cancelled)));
  server.registerTool('grow', { inputSchema: z.object({ name: z.string() }) }, async ({ name }) => {
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
  server.registerTool('whoami', {}, async (ctx) => {
    const info =
      ctx.mcpReq.envelope?.['io.modelcontextprotocol/clientInfo'] ??
      server.server.getClientVersion();
    return text(JSON.stringify({ client: info?.name ?? null }));
  });
  return server;
}

serveStdio(build, {
  legacy: flag === '--modern' ? 'reject' : 'serve',
  onerror: (error) => console.error(`error: ${error}`),
});
