// What `features.py` describes, on @modelcontextprotocol/server 2.x.
//
//     ts2_features_server.mjs
import {
  McpServer,
  ResourceNotFoundError,
  ResourceTemplate,
  completable,
  inputRequired,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const ABSENT = { pagination: 'McpServer lists everything on one page' };
const TASKS =
  'no tasks of its own; written on its handlers for other methods, as a test does, they work';
const cancelled = [];
const text = (value) => ({ content: [{ type: 'text', text: value }] });
const isModern = (ctx) => ctx.mcpReq.envelope !== undefined;
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
    { name: 'features', version: '1.2.3' },
    {
      instructions: 'Try every feature.',
      capabilities: {
        logging: {},
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
      },
    }
  );
  const subscribed = new Set();
  const tool = (name, shape, run, more = {}) =>
    server.registerTool(name, { inputSchema: z.object(shape), ...more }, run);
  // The client's answer, or the result that asks for it: `request` is that of the modern era.
  const ask = async (ctx, request, asking) => {
    if (!isModern(ctx)) return { answer: await asking() };
    const answer = ctx.mcpReq.inputResponses?.key;
    if (answer !== undefined) return { answer };
    return { required: inputRequired({ inputRequests: { key: request }, requestState: 'one' }) };
  };

  // -- tools --------------------------------------------------------------------------------------
  tool('absent', {}, async (_, ctx) => {
    const tasks = isModern(ctx) ? TASKS : 'no tasks of 2025-11-25';
    return text(JSON.stringify({ ...ABSENT, tasks }));
  });
  tool(
    'add',
    { a: z.number().int(), b: z.number().int() },
    async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { result: a + b } }),
    {
      title: 'Adder',
      description: 'Add two numbers.',
      outputSchema: z.object({ result: z.number().int() }),
      annotations: { title: 'Add up', readOnlyHint: true, destructiveHint: false },
      icons: [{ src: 'https://example.com/add.png', mimeType: 'image/png', sizes: ['48x48'] }],
      _meta: { 'example.com/kind': 'sum' },
    }
  );
  tool('fail', {}, async () => {
    throw new Error('boom');
  });
  tool('count', { n: z.number() }, async ({ n }, ctx) => {
    for (let i = 1; i <= n; i++) {
      await progress(ctx, { progress: i, total: n, message: `step ${i}` });
      // progress that a client reads together with the answer is lost (typescript-sdk#2580)
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return text(String(n));
  });
  tool('chatter', {}, async (_, ctx) => {
    for (const level of ['debug', 'info', 'warning', 'error']) {
      await ctx.mcpReq.log(level, { said: level }, 'chatter');
    }
    return text('said');
  });
  tool('wait', {}, async (_, ctx) => {
    await progress(ctx, { progress: 1 });
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => resolve(text('waited')), 30000);
      ctx.mcpReq.signal.addEventListener('abort', () => {
        clearTimeout(timer);
        cancelled.push('wait');
        reject(new Error('aborted'));
      });
    });
  });
  tool('noticed', {}, async () => text(JSON.stringify(cancelled)));
  tool('grow', { kind: z.string() }, async ({ kind }) => {
    if (kind === 'tools') {
      server.registerTool('late', {}, async () => text('late'));
    } else if (kind === 'prompts') {
      server.registerPrompt('late', {}, () => ({ messages: [] }));
    } else {
      server.registerResource('late', 'text://late', {}, async (uri) => ({
        contents: [{ uri: uri.href, text: 'late' }],
      }));
    }
    return text(kind);
  });
  tool('touch', { uri: z.string() }, async ({ uri }, ctx) => {
    if (isModern(ctx) || subscribed.has(uri)) await server.server.sendResourceUpdated({ uri });
    return text(uri);
  });
  tool('meta', {}, async (_, ctx) => ({
    ...text(String(ctx.mcpReq._meta?.['example.com/trace'])),
    _meta: { 'example.com/answer': 42 },
  }));

  // -- questions ----------------------------------------------------------------------------------
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

  // -- resources ----------------------------------------------------------------------------------
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

  // -- prompts and completion ---------------------------------------------------------------------
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
  return server;
}

serveStdio(build, { legacy: 'serve', onerror: (error) => console.error(`error: ${error}`) });
