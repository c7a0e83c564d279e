// The steps of `steps.py`, for the clients in JavaScript; see there for the report. A program brings
// a peer: how one SDK does each thing, with values as they are on the wire. A peer has
//
//     code(error)     the code of an error of the protocol, undefined for any other
//     connect()       and then: version, modern, about, call(params, options), ping(), logged(level),
//                     tools(), grown(kind, args), close(); for features also absent, firstPage(),
//                     prompts(), resources(), templates(), read(uri), getPrompt(params),
//                     complete(params), touched(uri); for scripts about tasks also tasks: its steps
import { readFileSync, writeFileSync } from 'node:fs';

const UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f';
const BIG = 'x日🎉\n'.repeat(1 << 17);
const STEP_MS = 20000;
const ANSWER_MS = 3000;
const NOTICED_MS = 2000;
const GREET = { type: 'ref/prompt', name: 'greet' };
export const textOf = (result) =>
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
const named = (list, name) => list.find((one) => one.name === name);
const textsOf = ({ messages }) => messages.map((one) => [one.role, one.content.text]);

// the tool could not ask what it wanted to
class Refused extends Error {}

// What a session notes: log entries, what the server asked, and what it told.
export class Notes {
  logs = [];
  asked = {};
  report = {};
  told = new Map();

  event(name) {
    if (!this.told.has(name)) {
      let happened;
      const promise = new Promise((resolve) => (happened = resolve));
      this.told.set(name, { promise, happened });
    }
    return this.told.get(name);
  }

  forget(name) {
    this.told.delete(name);
  }

  log = ({ params }) => this.logs.push([params.level, params.data, params.logger ?? null]);
  stray = (error) => (this.report.stray ??= []).push(String(error));
}

function common(peer, notes) {
  const call = (name, args = {}, options) => peer.call({ name, arguments: args }, options);
  return {
    call,
    said: async (name, args) => {
      const result = await call(name, args);
      if (result.isError) throw new Refused(textOf(result));
      return JSON.parse(textOf(result));
    },
    // a call that is given up at its first progress, and seen to be by the server
    givenUp: async (tag, args) => {
      const controller = new AbortController();
      const options = { signal: controller.signal, onprogress: () => controller.abort() };
      let ended = 'answered';
      await call('wait', args, options).catch(() => (ended = 'cancelled'));
      if (ended !== 'cancelled') return ended;
      for (;;) {
        const noticed = JSON.parse(textOf(await call('noticed')));
        if (noticed.includes(tag)) return noticed;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
    steps: {
      logging: async () => {
        notes.logs.length = 0;
        await peer.logged('warning');
        return notes.logs;
      },
      ping: async () => {
        if (peer.modern) return null;
        await peer.ping();
        return 'pong';
      },
    },
  };
}

function calls(peer, notes) {
  const { call, said, givenUp, steps } = common(peer, notes);
  const outcome = async (name, args) => {
    try {
      const result = await call(name, args);
      return { is_error: result.isError ?? false, text: textOf(result) };
    } catch (error) {
      return { code: error.code, message: error.message };
    }
  };
  const echoed = async (text, more) =>
    textOf(await call('echo', { text, ...more })) === text;
  return {
    tools: peer.tools,
    add: async () => {
      const result = await call('add', { a: 2, b: 3 });
      return { structured: result.structuredContent ?? null, text: textOf(result) };
    },
    person: async () => {
      const result = await call('person', { name: 'Ada', colour: 'green', tags: ['a', 'b'] });
      return { structured: result.structuredContent ?? null, text: JSON.parse(textOf(result)) };
    },
    blocks: async () => (await call('blocks')).content,
    fail: () => outcome('fail'),
    unknown: () => outcome('no such tool'),
    bad_arguments: () => outcome('add', { a: 'two', b: 3 }),
    whoami: () => said('whoami'),
    unicode: () => echoed(UNICODE),
    big: () => echoed(BIG),
    many: async () => {
      const one = (_, i) => echoed(`text ${i}`, { ms: (i * 7) % 20 });
      return (await Promise.all(Array.from({ length: 100 }, one))).filter(Boolean).length;
    },
    progress: async () => {
      // Progress that arrives together with the answer is lost (typescript-sdk#2580), so the
      // server holds the answer until the last of it was seen.
      const seen = { 3: [], 5: [] };
      const note = async (n, { progress, total, message }) => {
        seen[n].push([progress, total ?? null, message ?? null]);
        if (progress === n) await call('go', { n });
      };
      const count = (n) => call('count', { n, hold: true }, { onprogress: (p) => note(n, p) });
      await Promise.all([count(3), count(5)]);
      return seen;
    },
    ...steps,
    cancel: () => givenUp('mine', { tag: 'mine' }),
    list_changed: async () => {
      await peer.grown('tools', { name: 'late' });
      return (await peer.tools()).map((tool) => tool.name).sort();
    },
  };
}

function features(peer, notes) {
  const { call, said, givenUp, steps } = common(peer, notes);
  const adder = async () => named(await peer.tools(), 'add');
  const grown = async (kind) => {
    await peer.grown(kind, { kind });
    return named(await peer[kind](), 'late') !== undefined;
  };
  const complete = (ref, name, value, more) =>
    peer.complete({ ref, argument: { name, value }, ...more });
  return {
    said,
    instructions: async () => peer.about.instructions,
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
      named(await peer.prompts(), 'greet').title ?? null,
      named(await peer.resources(), 'hello').title ?? null,
    ],
    annotations: async () => (await adder()).annotations ?? null,
    icons: async () => (await adder()).icons ?? null,
    meta_of_things: async () => (await adder())._meta?.['example.com/kind'] ?? null,
    meta_of_requests: async () => {
      const _meta = { 'example.com/trace': 't-1' };
      const result = await peer.call({ name: 'meta', arguments: {}, _meta });
      return [textOf(result), result._meta?.['example.com/answer'] ?? null];
    },
    resources: async () =>
      (await peer.resources())
        .filter((resource) => resource.name !== 'late')
        .map((resource) => [resource.uri, resource.name, resource.mimeType])
        .sort(),
    read_text: () => peer.read('text://hello'),
    read_blob: () => peer.read('blob://bytes'),
    templates: async () =>
      (await peer.templates()).map((one) => [one.uriTemplate, one.name, one.mimeType]),
    read_template: () => peer.read('item://7'),
    missing_resource: () => peer.read('text://missing').then(() => 'found', peer.code),
    prompts: async () => {
      const prompt = named(await peer.prompts(), 'greet');
      const parameters = prompt.arguments.map((one) => [one.name, one.required ?? false]);
      return [prompt.name, prompt.description, parameters];
    },
    get_prompt: async () => {
      const params = { name: 'greet', arguments: { name: 'Ada', tone: 'cold' } };
      return textsOf(await peer.getPrompt(params));
    },
    complete_prompt: () => complete(GREET, 'name', 'A'),
    complete_template: () => complete({ type: 'ref/resource', uri: 'item://{id}' }, 'id', '1'),
    complete_context: () =>
      complete(GREET, 'tone', 'c', { context: { arguments: { name: 'Ada' } } }),
    progress: async () => {
      const seen = [];
      const note = (p) => seen.push([p.progress, p.total ?? null, p.message ?? null]);
      await call('count', { n: 3 }, { onprogress: note });
      return seen;
    },
    ...steps,
    cancellation: () => givenUp('wait'),
    pagination: async () => {
      const first = await peer.firstPage();
      const all = (await peer.tools()).map((tool) => tool.name);
      return [first.nextCursor !== undefined, all.length > first.tools.length, all.includes('add')];
    },
    tools_changed: () => grown('tools'),
    prompts_changed: () => grown('prompts'),
    resources_changed: () => grown('resources'),
    resource_updated: () => peer.touched('text://hello'),
    elicitation_form: async () => {
      const answer = await said('ask_form');
      const { message, requestedSchema } = notes.asked.elicitation;
      return [message, Object.keys(requestedSchema.properties).sort(), answer];
    },
    elicitation_url: async () => {
      const answer = await said('ask_url');
      return [notes.asked.elicitation.message, notes.asked.elicitation.url ?? null, answer];
    },
    sampling: async () => {
      const answer = await said('ask_sample');
      const { messages, maxTokens } = notes.asked.sampling;
      const [{ content }] = messages;
      return [(Array.isArray(content) ? content[0] : content).text, maxTokens, answer];
    },
    sampling_tools: async () => {
      const answer = await said('ask_sample_tools');
      return [notes.asked.sampling.tools.map((tool) => tool.name), answer];
    },
    roots: () => said('ask_roots'),
  };
}

function script(peer, notes) {
  const { call } = common(peer, notes);
  const soon = (name) => call(name, {}, { timeout: ANSWER_MS }).catch(() => undefined);
  return {
    ...features(peer, notes),
    text: async (name, args) => textOf(await call(name, args)),
    noted: async (name, args) => {
      const seen = [];
      const note = ({ progress, total }) => seen.push([progress, total ?? null]);
      await call(name, args, { onprogress: note });
      return seen;
    },
    names: async (kind) => (await peer[kind]()).map((one) => one.name),
    support: async () =>
      Object.fromEntries(
        (await peer.tools())
          .filter((tool) => tool.execution)
          .map((tool) => [tool.name, tool.execution.taskSupport])
      ),
    first_read: async () => (await peer.read((await peer.resources())[0].uri)).length,
    prompt: async (name) => textsOf(await peer.getPrompt({ name })),
    change: async () => {
      await call('change');
      await notes.event('tools').promise;
      return null;
    },
    logs: async () => notes.logs.map((entry) => entry[1]),
    ended: async (name) => {
      const host = textOf(await call('who'));
      await soon(name);
      if (peer.modern) await new Promise((resolve) => setTimeout(resolve, NOTICED_MS));
      while (!peer.modern) {
        const result = await soon('who');
        if (result !== undefined && textOf(result) !== host) break;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      return null;
    },
    ...peer.tasks,
  };
}

async function hold(makePeer, job) {
  const notes = new Notes();
  const { report } = notes;
  const peer = makePeer(job, notes);
  try {
    await within(peer.connect());
  } catch (error) {
    if (job.features || job.script) throw error;
    report.connect_error = String(error);
    await peer.close();
    return report;
  }
  Object.assign(report, peer.about, { version: peer.version });
  const kind = job.script ? script : job.features ? features : calls;
  const steps = kind(peer, notes);
  const absent = job.features ? { ...(await steps.said('absent')), ...peer.absent } : {};
  const rows = job.script ?? (job.features ?? Object.keys(steps)).map((name) => [name, name]);
  for (const [key, name, ...args] of rows) {
    if (name in absent) {
      report[key] = { absent: absent[name] };
      continue;
    }
    try {
      report[key] = await within(steps[name](...args));
    } catch (error) {
      if (error instanceof Refused) report[key] = { refused: error.message };
      else if (peer.code(error) !== undefined)
        report[key] = { code: peer.code(error), message: error.message };
      else report[key] = { failed: String(error.stack ?? error) };
    }
  }
  report.closing = true;
  await peer.close();
  return report;
}

// Holds the sessions of a job, a file that the program is called with, and reports them.
export async function run(makePeer) {
  const job = JSON.parse(readFileSync(process.argv[2], 'utf8'));
  const reports = {};
  for (const session of job.sessions) {
    try {
      reports[session.name] = await hold(makePeer, session);
    } catch (error) {
      reports[session.name] = { failed: String(error.stack ?? error) };
    }
  }
  writeFileSync(job.report, JSON.stringify(reports));
  process.exit(0);
}
