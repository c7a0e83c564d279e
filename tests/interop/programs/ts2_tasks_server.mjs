// The tasks extension of 2026-07-28, written on @modelcontextprotocol/server 2.x, which has handlers
// for methods of one's own: what `test_tasks.py` describes.
import { ProtocolError, Server } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const STAMP = '2026-07-28T00:00:00Z';
const QUESTION = {
  method: 'elicitation/create',
  params: {
    mode: 'form',
    message: 'Who are you?',
    requestedSchema: {
      type: 'object',
      properties: { name: { type: 'string' } },
      required: ['name'],
    },
  },
};
const shown = new Map();
const find = (taskId) => {
  if (!shown.has(taskId)) throw new ProtocolError(-32602, 'Unknown task');
  return shown.get(taskId);
};
const end = (task, text) => {
  delete task.inputRequests;
  task.status = 'completed';
  task.result = { content: [{ type: 'text', text }], resultType: 'complete' };
};

function build() {
  const server = new Server(
    { name: 'tasks', version: '1' },
    { capabilities: { tools: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } } }
  );
  server.setRequestHandler('tools/list', async () => ({
    tools: ['slow', 'endless', 'ask'].map((name) => ({ name, inputSchema: { type: 'object' } })),
  }));
  server.setRequestHandler('tools/call', async ({ params }) => {
    const task = {
      taskId: `task-${shown.size + 1}`,
      status: 'working',
      createdAt: STAMP,
      lastUpdatedAt: STAMP,
      ttlMs: 60000,
      pollIntervalMs: 20,
    };
    const made = { ...task, resultType: 'task' };
    shown.set(task.taskId, task);
    if (params.name === 'ask') {
      Object.assign(task, { status: 'input_required', inputRequests: { name: QUESTION } });
    } else {
      setTimeout(() => {
        if (task.status === 'working') end(task, 'done');
      }, params.name === 'endless' ? 30000 : 50).unref();
    }
    return made;
  });
  const named = z.looseObject({ taskId: z.string() });
  server.setRequestHandler('tasks/get', { params: named }, async ({ taskId }) => find(taskId));
  server.setRequestHandler('tasks/update', { params: named }, async (params, ctx) => {
    const { name } = ctx.mcpReq.inputResponses ?? params.inputResponses;
    end(find(params.taskId), `${name.action} ${name.content?.name}`);
    return {};
  });
  server.setRequestHandler('tasks/cancel', { params: named }, async ({ taskId }) => {
    find(taskId).status = 'cancelled';
    return {};
  });
  return server;
}

serveStdio(build, { onerror: (error) => console.error(`error: ${error}`) });
