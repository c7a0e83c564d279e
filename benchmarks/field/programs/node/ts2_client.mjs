// A client with the TypeScript SDK 2.x: calls echo of the server that a command starts.
//
//     ts2_client.mjs CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { load } from './load.mjs';

const [command, ...args] = process.argv.slice(5);
const client = new Client({ name: 'field', version: '1' });
await client.connect(new StdioClientTransport({ command, args }));
await load((text) => client.callTool({ name: 'echo', arguments: { text } }));
await client.close();
