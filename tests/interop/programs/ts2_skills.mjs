// Skills with @modelcontextprotocol/server and /client 2.x.
//
//     ts2_skills.mjs serve FOLDER
//     ts2_skills.mjs read ERA COMMAND…    (prints the digests of all files that it verified)
import { createHash } from 'node:crypto';
import { Client } from '@modelcontextprotocol/client';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { McpServer } from '@modelcontextprotocol/server';
import { loadSkills } from '@modelcontextprotocol/server/ext/skills/node';
import { serveStdio } from '@modelcontextprotocol/server/stdio';

async function serve(folder) {
  const catalog = await loadSkills(folder, { strict: true });
  serveStdio(() => {
    const server = new McpServer({ name: 'skills', version: '1.0.0' });
    catalog.attach(server);
    return server;
  });
}

async function read(era, command, ...args) {
  const mode = era === 'modern' ? { pin: '2026-07-28' } : 'legacy';
  const client = new Client(
    { name: 'skills', version: '1.0.0' },
    { versionNegotiation: { mode } }
  );
  await client.connect(new StdioClientTransport({ command, args, stderr: 'inherit' }));
  const skills = new SkillsClient(client);
  const found = {};
  for (const skill of (await skills.list()).skills) {
    const root = skill.uri.slice(0, -'SKILL.md'.length);
    const files = {};
    for (const { uri } of skill.resources) {
      const { bytes, verified } = await skills.read(skill, uri);
      if (!verified) throw new Error(`${uri} was not verified`);
      const path = decodeURIComponent(uri.slice(root.length));
      files[path] = createHash('sha256').update(bytes).digest('hex');
    }
    found[skill.uri] = files;
  }
  await client.close();
  console.log(JSON.stringify(found));
}

const [action, ...rest] = process.argv.slice(2);
await (action === 'serve' ? serve(...rest) : read(...rest));
