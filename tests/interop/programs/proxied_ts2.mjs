// The client of @modelcontextprotocol/client 2.x uses the servers behind one proxy, and prints what
// it saw.
//
//     proxied_ts2.mjs URL MODE FOLDER
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { textOf } from './steps.mjs';

const [url, mode, folder] = process.argv.slice(2);
const client = new Client(
  { name: 'peer', version: '1' },
  { versionNegotiation: { mode: mode.startsWith('20') ? { pin: mode } : mode } }
);
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const calls = {
  time_get_current_time: { timezone: 'UTC' },
  everything_echo: { message: 'hi' },
  files_list_directory: { path: folder },
};
const answers = {};
for (const [name, args] of Object.entries(calls)) {
  answers[name] = textOf(await client.callTool({ name, arguments: args }));
}
const steps = [];
await client.callTool(
  {
    name: 'everything_trigger-long-running-operation',
    arguments: { duration: 0.4, steps: 2 },
  },
  { onprogress: ({ progress }) => steps.push(progress) }
);
const { resources } = await client.listResources();
const read = await client.readResource({ uri: resources[0].uri });
const prompt = await client.getPrompt({ name: 'everything_simple-prompt' });
const report = {
  version: client.getNegotiatedProtocolVersion(),
  tools: (await client.listTools()).tools.map((tool) => tool.name),
  answers,
  steps,
  read: read.contents.length,
  prompts: (await client.listPrompts()).prompts.map((one) => one.name),
  prompt: prompt.messages.length,
};
await client.close();
console.log(JSON.stringify(report));
process.exit(0);
