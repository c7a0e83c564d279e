// A host of apps on a page, of the official bridge: calls ?tool= of the server at ?url=, and shows its
// page in a frame under ?policy=. What the page of the app says to the host is in `said`.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  PostMessageTransport,
  getToolUiResourceUri,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const asked = new URL(location).searchParams;
const host = { name: "host", version: "1" };
globalThis.said = [];

async function show() {
  const client = new Client(host);
  await client.connect(new StreamableHTTPClientTransport(new URL(asked.get("url"))));
  const { tools } = await client.listTools();
  const tool = tools.find(({ name }) => name === asked.get("tool"));
  const { contents } = await client.readResource({ uri: getToolUiResourceUri(tool) });

  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  frame.allow = asked.get("allow");
  document.body.append(frame);

  const bridge = new AppBridge(client, host, { openLinks: {}, serverTools: {}, logging: {} });
  bridge.onmessage = async ({ content }) => (said.push(content[0].text), {});
  bridge.onloggingmessage = ({ data }) => said.push(data);
  const ready = new Promise((resolve) => (bridge.oninitialized = resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  const policy = `<meta http-equiv="Content-Security-Policy" content="${asked.get("policy")}">`;
  frame.srcdoc = contents[0].text.replace("<head>", `<head>${policy}`);
  await ready;

  await bridge.sendToolInput({ arguments: {} });
  const result = await client.callTool({ name: tool.name, arguments: {} });
  await bridge.sendToolResult(result);
  return { mimeType: contents[0].mimeType, time: result.structuredContent.time };
}

globalThis.finished = show();
