// Goes through the features with @modelcontextprotocol/client 2.x; `features.py` says what each
// step is to see.
//
//     ts2_features_client.mjs JOB    (a file of JSON: sessions to hold, and where to report)
import { readFileSync, writeFileSync } from 'node:fs';
import { Client, ProtocolError } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const STEP_MS = 10000;
const TASKS =
  'no tasks of its own; it refuses results that are one, but sends requests about them, as a test does';
const textOf = (result) =>
  result.content
    .filter((block) => block.type === 'text')
    .map((block) => block.text)
    .join('\n');
const within = (promise) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('took too long')), STEP_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

// the tool could not ask what it wanted to
class Refused extends Error {}

async function hold(job) {
  const report = {};
  const logs = [];
  const asked = {};
  const told = new Map();
  const event = (name) => {
    if (!told.has(name)) {
      let happened;
      const promise = new Promise((resolve) => (happened = resolve));
      told.set(name, { promise, happened });
    }
    return told.get(name);
  };
  const client = new Client(
    { name: 'peer', version: '1' },
    {
      versionNegotiation: { mode: job.mode },
      defaultCacheTtlMs: 0,
      capabilities: {
        sampling: { tools: {} },
        elicitation: { form: {}, url: {} },
        roots: { listChanged: true },
      },
    }
  );
  client.onerror = (error) => (report.stray ??= []).push(String(error));
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
  client.setNotificationHandler('notifications/message', ({ params }) => {
    logs.push([params.level, params.data, params.logger ?? null]);
  });
  for (const kind of ['tools', 'prompts', 'resources']) {
    const method = `notifications/${kind}/list_changed`;
    client.setNotificationHandler(method, () => event(method).happened());
  }
  client.setNotificationHandler('notifications/resources/updated', ({ params }) =>
    event(`updated ${params.uri}`).happened()
  );
  const [command, ...args] = job.command;
  await within(client.connect(new StdioClientTransport({ command, args })));
  report.version = client.getNegotiatedProtocolVersion();
  const modern = client.getProtocolEra() === 'modern';

  const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, options);
  const said = async (name) => {
    const result = await call(name);
    if (result.isError) throw new Refused(textOf(result));
    return JSON.parse(textOf(result));
  };
  const every = { cacheMode: 'refresh' };
  const tools = async () => (await client.listTools(undefined, every)).tools;
  const prompts = async () => (await client.listPrompts(undefined, every)).prompts;
  const resources = async () => (await client.listResources(undefined, every)).resources;
  const adder = async () => (await tools()).find((tool) => tool.name === 'add');
  const changed = async (kind, list) => {
    const filter = { [`${kind}ListChanged`]: true };
    const listening = modern ? await client.listen(filter) : null;
    await call('grow', { kind });
    await event(`notifications/${kind}/list_changed`).promise;
    await listening?.close();
    return (await list()).some((thing) => thing.name === 'late');
  };
  const read = async (uri) => (await client.readResource({ uri }, every)).contents;
  const complete = async (ref, name, value, context) => {
    const params = { ref, argument: { name, value }, ...(context ? { context } : {}) };
    return (await client.complete(params)).completion.values;
  };
  const greet = { type: 'ref/prompt', name: 'greet' };
  const steps = {
    instructions: async () => client.getInstructions() ?? null,
    ping: async () => {
      await client.ping();
      return 'pong';
    },
    tools: async () => {
      const tool = await adder();
      return [tool.name, tool.description, Object.keys(tool.inputSchema.properties).sort()];
    },
    structured: async () => {
      const type = (await adder()).outputSchema?.properties.result.type ?? null;
      const result = await call('add', { a: 2, b: 3 });
      return [type, result.structuredContent ?? null, textOf(result)];
    },
    tool_error: async () => {
      const result = await call('fail');
      return [result.isError, textOf(result).includes('boom')];
    },
    titles: async () => [
      (await adder()).title ?? null,
      (await prompts()).find((prompt) => prompt.name === 'greet').title ?? null,
      (await resources()).find((resource) => resource.name === 'hello').title ?? null,
    ],
    annotations: async () => (await adder()).annotations ?? null,
    icons: async () => (await adder()).icons ?? null,
    meta_of_things: async () => (await adder())._meta?.['example.com/kind'] ?? null,
    meta_of_requests: async () => {
      const _meta = { 'example.com/trace': 't-1' };
      const result = await client.callTool({ name: 'meta', arguments: {}, _meta });
      return [textOf(result), result._meta?.['example.com/answer'] ?? null];
    },
    resources: async () =>
      (await resources())
        .filter((resource) => resource.name !== 'late')
        .map((resource) => [resource.uri, resource.name, resource.mimeType])
        .sort(),
    read_text: () => read('text://hello'),
    read_blob: () => read('blob://bytes'),
    templates: async () =>
      (await client.listResourceTemplates(undefined, every)).resourceTemplates.map((template) => [
        template.uriTemplate,
        template.name,
        template.mimeType,
      ]),
    read_template: () => read('item://7'),
    missing_resource: async () => {
      try {
        await read('text://missing');
      } catch (error) {
        return error.code;
      }
      return 'found';
    },
    prompts: async () => {
      const prompt = (await prompts()).find((one) => one.name === 'greet');
      const parameters = prompt.arguments.map((one) => [one.name, one.required ?? false]);
      return [prompt.name, prompt.description, parameters];
    },
    get_prompt: async () => {
      const result = await client.getPrompt({
        name: 'greet',
        arguments: { name: 'Ada', tone: 'cold' },
      });
      return result.messages.map((message) => [message.role, message.content.text]);
    },
    complete_prompt: () => complete(greet, 'name', 'A'),
    complete_template: () => complete({ type: 'ref/resource', uri: 'item://{id}' }, 'id', '1'),
    complete_context: () => complete(greet, 'tone', 'c', { arguments: { name: 'Ada' } }),
    logging: async () => {
      if (modern) {
        const _meta = { 'io.modelcontextprotocol/logLevel': 'warning' };
        await client.callTool({ name: 'chatter', arguments: {}, _meta });
      } else {
        await client.setLoggingLevel('warning');
        await call('chatter');
      }
      return logs;
    },
    progress: async () => {
      const seen = [];
      await call(
        'count',
        { n: 3 },
        { onprogress: (p) => seen.push([p.progress, p.total ?? null, p.message ?? null]) }
      );
      return seen;
    },
    cancellation: async () => {
      const controller = new AbortController();
      const options = { signal: controller.signal, onprogress: () => controller.abort() };
      let ended = 'answered';
      await call('wait', {}, options).catch(() => (ended = 'cancelled'));
      if (ended !== 'cancelled') return ended;
      for (;;) {
        const noticed = JSON.parse(textOf(await call('noticed')));
        if (noticed.includes('wait')) return noticed;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
    pagination: async () => {
      // a request of its own: listTools walks all the pages
      const first = await client.request({ method: 'tools/list', params: {} });
      const names = (await tools()).map((tool) => tool.name);
      return [first.nextCursor !== undefined, names.length > first.tools.length, names.includes('add')];
    },
    tools_changed: () => changed('tools', tools),
    prompts_changed: () => changed('prompts', prompts),
    resources_changed: () => changed('resources', resources),
    resource_updated: async () => {
      const uri = 'text://hello';
      const listening = modern ? await client.listen({ resourceSubscriptions: [uri] }) : null;
      if (!modern) await client.subscribeResource({ uri });
      await call('touch', { uri });
      await event(`updated ${uri}`).promise;
      await listening?.close();
      if (!modern) await client.unsubscribeResource({ uri });
      return uri;
    },
    elicitation_form: async () => {
      const answer = await said('ask_form');
      const { message, requestedSchema } = asked.elicitation;
      return [message, Object.keys(requestedSchema.properties).sort(), answer];
    },
    elicitation_url: async () => {
      const answer = await said('ask_url');
      return [asked.elicitation.message, asked.elicitation.url ?? null, answer];
    },
    sampling: async () => {
      const answer = await said('ask_sample');
      const { messages, maxTokens } = asked.sampling;
      const [{ content }] = messages;
      return [(Array.isArray(content) ? content[0] : content).text, maxTokens, answer];
    },
    sampling_tools: async () => {
      const answer = await said('ask_sample_tools');
      return [asked.sampling.tools.map((tool) => tool.name), answer];
    },
    roots: () => said('ask_roots'),
  };
  const absent = JSON.parse(textOf(await call('absent')));
  absent.tasks = modern ? TASKS : 'no tasks of 2025-11-25';
  for (const name of job.features) {
    if (name in absent) {
      report[name] = { absent: absent[name] };
      continue;
    }
    try {
      report[name] = await within(steps[name]());
    } catch (error) {
      if (error instanceof Refused) report[name] = { refused: error.message };
      else if (error instanceof ProtocolError)
        report[name] = { code: error.code, message: error.message };
      else report[name] = { failed: String(error.stack ?? error) };
    }
  }
  report.closing = true;
  await client.close();
  return report;
}

const job = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const reports = {};
for (const session of job.sessions) {
  try {
    reports[session.name] = await hold(session);
  } catch (error) {
    reports[session.name] = { failed: String(error.stack ?? error) };
  }
}
writeFileSync(job.report, JSON.stringify(reports));
process.exit(0);
