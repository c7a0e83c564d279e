// A client of @modelcontextprotocol/sdk 1.x whose streams break: what it gets nevertheless, as JSON.
//
//     ts1_streams_client.mjs URL http|sse
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  LoggingMessageNotificationSchema,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [, , url, kind] = process.argv;
const Transport = kind === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
const client = new Client({ name: 'peer', version: '1' });
const logs = [];
client.setNotificationHandler(LoggingMessageNotificationSchema, (message) => {
  logs.push(message.params.data);
});
const changed = new Promise((resolve) => {
  client.setNotificationHandler(ToolListChangedNotificationSchema, resolve);
});
await client.connect(new Transport(new URL(url)));
const call = async (name) => (await client.callTool({ name, arguments: {} })).content[0].text;
const found = { plain: await call('plain') };
if (kind === 'http') {
  found.poll = await call('poll');
  found.cut = await call('cut');
}
await call('change');
await changed;
console.log(JSON.stringify({ ...found, logs }));
await client.close();
