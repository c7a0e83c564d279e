// A client of TypeScript logs in to a protected server, and calls it, as JSON.
//
//     ts_auth_client.mjs ts1|ts2 URL
import { Buffer } from 'node:buffer';

const [, , kind, url] = process.argv;
const load = {
  ts2: () => import('@modelcontextprotocol/client'),
  ts1: async () => ({
    ...(await import('@modelcontextprotocol/sdk/client/index.js')),
    ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
    ...(await import('@modelcontextprotocol/sdk/client/auth.js')),
  }),
};
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await load[kind]();

// A person at the page of authlib_server.py, without a browser.
async function logIn(page) {
  const body = new URLSearchParams({ user: 'ada', password: 'lovelace', consent: 'yes' });
  const answer = await fetch(page, { method: 'POST', body, redirect: 'manual' });
  if (answer.status !== 302) throw new Error(`${answer.status} ${await answer.text()}`);
  return new URL(answer.headers.get('location'));
}

const kept = {};
const logins = [];
const provider = {
  redirectUrl: 'http://127.0.0.1:4711/callback',
  clientMetadata: {
    client_name: kind,
    redirect_uris: ['http://127.0.0.1:4711/callback'],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  },
  state: () => 'a-state-of-this-client',
  clientInformation: () => kept.client,
  saveClientInformation: (client) => (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (found) => (kept.discovery = found),
  redirectToAuthorization: async (page) => logins.push(await logIn(page)),
};

// The SDK ends a request with UnauthorizedError; its user takes the code to it, and asks again.
async function loggedIn(transport, work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    const callback = logins.at(-1).searchParams;
    if (kind === 'ts2') await transport.finishAuth(callback);
    else await transport.finishAuth(callback.get('code'));
    return undefined;
  }
}

async function connected() {
  for (;;) {
    const client = new Client({ name: 'peer', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
    if (await loggedIn(transport, async () => (await client.connect(transport), true))) {
      return { client, transport };
    }
  }
}

const { client, transport } = await connected();
const names = (await client.listTools()).tools.map((tool) => tool.name);
const calls = [];
for (const name of ['whoami', 'write'].filter((name) => names.includes(name))) {
  const call = () => client.callTool({ name, arguments: {} });
  try {
    const result = (await loggedIn(transport, call)) ?? (await call());
    calls.push({ ...JSON.parse(result.content[0].text), logins: logins.length });
  } catch (error) {
    calls.push({ error: error.message });
  }
}
await client.close();
process.stdout.write(Buffer.from(`${JSON.stringify({ calls })}\n`));
