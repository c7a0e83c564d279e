// Does with @modelcontextprotocol/sdk 1.x what `ours.py` does with ours; see there.
//
//     ts1_client.mjs JOB    (a file of JSON: sessions to hold, and where to report)
import { readFileSync, writeFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import {
  LoggingMessageNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f';
const BIG = 'x日🎉\n'.repeat(1 << 17);
const textOf = (result) =>
  result.content
    .filter((block) => block.type === 'text')
    .map((block) => block.text)
    .join('\n');
const within = (promise, ms = 20000) => {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('took too long')), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

async function hold(job) {
  const report = {};
  const logs = [];
  let onChanged;
  const changed = new Promise((resolve) => (onChanged = resolve));
  const client = new Client({ name: 'peer', version: '1' });
  client.onerror = (error) => (report.stray ??= []).push(String(error));
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
    logs.push([params.level, params.data, params.logger ?? null]);
  });
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => onChanged());
  // what was negotiated is not kept, so it is read on its way
  let version = null;
  const request = client.request.bind(client);
  client.request = async (message, ...rest) => {
    const result = await request(message, ...rest);
    if (message.method === 'initialize') version = result.protocolVersion;
    return result;
  };
  const transport = () => {
    if (job.url) return new WebSocketClientTransport(new URL(job.url));
    const [command, ...args] = job.command;
    return new StdioClientTransport({ command, args });
  };
  try {
    await within(client.connect(transport()));
  } catch (error) {
    report.connect_error = String(error);
    await client.close();
    return report;
  }
  report.version = version;
  report.server_info = client.getServerVersion() ?? null;
  report.instructions = client.getInstructions() ?? null;
  report.capabilities = client.getServerCapabilities();

  const call = (name, args, options) =>
    client.callTool({ name, arguments: args }, undefined, options);
  const outcome = async (name, args) => {
    try {
      const result = await call(name, args);
      return { is_error: result.isError ?? false, text: textOf(result) };
    } catch (error) {
      return { code: error.code, message: error.message };
    }
  };
  const allTools = async () => {
    const tools = [];
    let cursor;
    do {
      const page = await client.listTools(cursor === undefined ? undefined : { cursor });
      tools.push(...page.tools);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return tools;
  };
  const steps = {
    tools: allTools,
    add: async () => {
      const result = await call('add', { a: 2, b: 3 });
      return { structured: result.structuredContent ?? null, text: textOf(result) };
    },
    person: async () => {
      const result = await call('person', { name: 'Ada', colour: 'green', tags: ['a', 'b'] });
      return { structured: result.structuredContent ?? null, text: JSON.parse(textOf(result)) };
    },
    blocks: async () => (await call('blocks', {})).content,
    fail: () => outcome('fail', {}),
    unknown: () => outcome('no such tool', {}),
    bad_arguments: () => outcome('add', { a: 'two', b: 3 }),
    whoami: async () => JSON.parse(textOf(await call('whoami', {}))),
    unicode: async () => textOf(await call('echo', { text: UNICODE })) === UNICODE,
    big: async () => textOf(await call('echo', { text: BIG })) === BIG,
    many: async () => {
      const right = await Promise.all(
        Array.from({ length: 100 }, async (_, i) => {
          const result = await call('echo', { text: `text ${i}`, ms: (i * 7) % 20 });
          return textOf(result) === `text ${i}` ? 1 : 0;
        })
      );
      return right.reduce((a, b) => a + b);
    },
    progress: async () => {
      // Progress that arrives together with the answer is lost (typescript-sdk#2580), so the
      // server holds the answer until the last of it was seen.
      const seen = { 3: [], 5: [] };
      const note = async (n, { progress, total, message }) => {
        seen[n].push([progress, total ?? null, message ?? null]);
        if (progress === n) await call('go', { n });
      };
      await Promise.all(
        Object.keys(seen)
          .map(Number)
          .map((n) => call('count', { n, hold: true }, { onprogress: (p) => note(n, p) }))
      );
      return seen;
    },
    logging: async () => {
      await client.setLoggingLevel('warning');
      await call('chatter', {});
      return logs;
    },
    cancel: async () => {
      const controller = new AbortController();
      const options = { signal: controller.signal, onprogress: () => controller.abort() };
      let ended = 'answered';
      await call('wait', { tag: 'mine' }, options).catch(() => (ended = 'cancelled'));
      if (ended !== 'cancelled') return ended;
      for (;;) {
        const noticed = JSON.parse(textOf(await call('noticed', {})));
        if (noticed.includes('mine')) return noticed;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    },
    list_changed: async () => {
      await call('grow', { name: 'late' });
      await changed;
      return (await allTools()).map((tool) => tool.name).sort();
    },
    ping: async () => {
      await client.ping();
      return 'pong';
    },
  };
  for (const [name, step] of Object.entries(steps)) {
    try {
      report[name] = await within(step());
    } catch (error) {
      report[name] = { failed: String(error.stack ?? error) };
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
