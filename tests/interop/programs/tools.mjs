// The tools that the servers in JavaScript offer, written once: those of `our_server.py`. A program
// brings an sdk: how one SDK does each thing.
//
//     tool(name, shape, run, more)    registers a tool; run gets the arguments and a context
//     progress(ctx, params), log(ctx, level), signal(ctx), client(ctx)
//     asks                            what asks the client: ping() and listRoots()
import { z } from 'zod';

export const text = (value) => ({ content: [{ type: 'text', text: value }] });
export const cancelled = [];
const sleep = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new Error('aborted'));
    });
  });

// What both kinds of servers have; progress that a client reads together with the answer is lost
// (typescript-sdk#2580), so the servers of features leave a pause behind it.
export function common(sdk, pause = 0) {
  sdk.tool('fail', {}, async () => {
    throw new Error('boom');
  });
  sdk.tool('count', { n: z.number() }, async ({ n }, ctx) => {
    for (let i = 1; i <= n; i++) {
      await sdk.progress(ctx, { progress: i, total: n, message: `step ${i}` });
      if (pause) await sleep(pause);
    }
    return text(String(n));
  });
  sdk.tool('chatter', {}, async (_, ctx) => {
    for (const level of ['debug', 'info', 'warning', 'error']) await sdk.log(ctx, level);
    return text('said');
  });
  sdk.tool('wait', { tag: z.string().default('wait') }, async ({ tag }, ctx) => {
    sdk.signal(ctx).addEventListener('abort', () => cancelled.push(tag));
    await sdk.progress(ctx, { progress: 1 });
    await sleep(30000, sdk.signal(ctx));
    return text('waited');
  });
  sdk.tool('noticed', {}, async () => text(JSON.stringify(cancelled)));
}

export const adder = [
  { a: z.number().int(), b: z.number().int() },
  async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } }),
  { description: 'Add two numbers.', outputSchema: z.object({ result: z.number().int() }) },
];

export function calls(sdk) {
  common(sdk);
  sdk.tool('add', ...adder);
  sdk.tool('echo', { text: z.string(), ms: z.number().int().default(0) }, async (args) => {
    await sleep(args.ms);
    return text(args.text);
  });
  const colour = z.enum(['red', 'green']);
  sdk.tool(
    'person',
    {
      name: z.string(),
      age: z.number().int().default(30),
      colour: colour.default('red'),
      tags: z.array(z.string()).nullable().default(null),
    },
    async ({ name, age, colour, tags }) => {
      const value = { name, age, colour, tags: tags ?? [] };
      return { ...text(JSON.stringify(value)), structuredContent: value };
    },
    {
      outputSchema: z.object({
        name: z.string(),
        age: z.number().int(),
        colour,
        tags: z.array(z.string()),
      }),
    }
  );
  sdk.tool('blocks', {}, async () => ({
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
  sdk.tool('grow', { name: z.string() }, async ({ name }) => {
    sdk.tool(name, {}, async () => text('late'), { description: 'Came late.' });
    return text(name);
  });
  sdk.tool('ask', {}, async () => {
    // the client is asked something, and then what it cannot answer (legacy)
    await sdk.asks.ping();
    try {
      await sdk.asks.listRoots();
    } catch (error) {
      return text(String(error.code));
    }
    return text('answered');
  });
  sdk.tool('whoami', {}, async (_, ctx) =>
    text(JSON.stringify({ client: sdk.client(ctx)?.name ?? null }))
  );
}
