// The client of @modelcontextprotocol/sdk 1.x goes through the steps of `steps.mjs`.
//
//     ts1_client.mjs JOB    (a file of JSON: sessions to hold, and where to report)
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import {
  ElicitRequestSchema,
  LoggingMessageNotificationSchema,
  McpError,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { run, textOf } from './steps.mjs';

await run((job, notes) => {
  const asks = job.tasks || job.features;
  const client = new Client(
    { name: 'peer', version: '1' },
    asks ? { capabilities: { elicitation: { form: {} } } } : {}
  );
  if (asks) {
    const content = job.tasks ? { name: 'Ada' } : { name: 'Ada', age: 36 };
    client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
      notes.asked.elicitation = params;
      return { action: 'accept', content };
    });
  }
  client.onerror = notes.stray;
  client.setNotificationHandler(LoggingMessageNotificationSchema, notes.log);
  client.setNotificationHandler(ToolListChangedNotificationSchema, () =>
    notes.event('tools').happened()
  );
  const transport = () => {
    if (job.url?.startsWith('ws')) return new WebSocketClientTransport(new URL(job.url));
    if (job.url?.endsWith('/sse')) return new SSEClientTransport(new URL(job.url));
    if (job.url) return new StreamableHTTPClientTransport(new URL(job.url));
    const [command, ...args] = job.command;
    return new StdioClientTransport({ command, args });
  };
  const { tasks } = client.experimental;
  const start = async (name) => {
    const options = { task: { ttl: 60000 } };
    const stream = tasks.callToolStream({ name, arguments: {} }, undefined, options);
    return { task: (await stream.next()).value.task, stream };
  };
  const peer = {
    modern: false,
    tasks: {
      task: async (name) => {
        for await (const message of (await start(name)).stream) {
          if (message.type === 'result') return textOf(message.result);
          if (message.type === 'error') return String(message.error);
        }
      },
      endless: async () => {
        const { taskId } = (await start('endless')).task;
        return {
          working: (await tasks.getTask(taskId)).status,
          listed: (await tasks.listTasks()).tasks.some((one) => one.taskId === taskId),
          cancelled: (await tasks.cancelTask(taskId)).status,
        };
      },
    },
    code: (error) => (error instanceof McpError ? error.code : undefined),
    connect: async () => {
      // what was negotiated is not kept, so it is read on its way
      const request = client.request.bind(client);
      client.request = async (message, ...rest) => {
        const result = await request(message, ...rest);
        if (message.method === 'initialize') peer.version = result.protocolVersion;
        return result;
      };
      await client.connect(transport());
      peer.about = {
        server_info: client.getServerVersion() ?? null,
        instructions: client.getInstructions() ?? null,
        capabilities: client.getServerCapabilities(),
      };
    },
    close: () => client.close(),
    call: (params, options) => client.callTool(params, undefined, options),
    ping: () => client.ping(),
    logged: async (level) => {
      await client.setLoggingLevel(level);
      await client.callTool({ name: 'chatter', arguments: {} });
    },
    tools: async () => {
      const tools = [];
      let cursor;
      do {
        const page = await client.listTools(cursor === undefined ? undefined : { cursor });
        tools.push(...page.tools);
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return tools;
    },
    grown: async (kind, args) => {
      notes.forget(kind);
      await client.callTool({ name: 'grow', arguments: args });
      await notes.event(kind).promise;
    },
  };
  return peer;
});
