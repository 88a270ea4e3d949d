// What scripted clients on the TypeScript SDK share with no version of it: v1 is `@modelcontextprotocol/sdk`,
// v2 `@modelcontextprotocol/client`. `loaded` gives both the same face.
import { existsSync } from "node:fs";
import net from "node:net";
import { pathToFileURL } from "node:url";

// The SDK in a directory: its classes, and what the versions call differently.
export async function loaded(directory) {
  const load = (path) => import(pathToFileURL(`${directory}/dist/${path}`).href);
  if (existsSync(`${directory}/dist/index.mjs`)) {
    const { Client, ReadBuffer, StreamableHTTPClientTransport, serializeMessage } = await load("index.mjs");
    const { StdioClientTransport } = await load("stdio.mjs");
    return {
      made: (info, mode, capabilities = {}) =>
        new Client(info, { versionNegotiation: { mode: negotiated(mode) }, capabilities }),
      onRequest: (client, method, answer) => client.setRequestHandler(method, answer),
      request: (client, message) => client.request(message, ANYTHING),
      onToolsChanged: (client, note) => client.setNotificationHandler("notifications/tools/list_changed", note),
      call: (client, params, options) => client.callTool(params, options),
      ReadBuffer,
      StdioClientTransport,
      StreamableHTTPClientTransport,
      serializeMessage,
    };
  }
  const { Client } = await load("esm/client/index.js");
  const { StdioClientTransport } = await load("esm/client/stdio.js");
  const { StreamableHTTPClientTransport } = await load("esm/client/streamableHttp.js");
  const { ReadBuffer, serializeMessage } = await load("esm/shared/stdio.js");
  const types = await load("esm/types.js");
  const { ToolListChangedNotificationSchema } = types;
  const requests = {
    "elicitation/create": types.ElicitRequestSchema,
    "sampling/createMessage": types.CreateMessageRequestSchema,
    "roots/list": types.ListRootsRequestSchema,
  };
  return {
    made: (info, _mode, capabilities = {}) => new Client(info, { capabilities }),
    onRequest: (client, method, answer) => client.setRequestHandler(requests[method], answer),
    request: (client, message) => client.request(message, types.ResultSchema),
    onToolsChanged: (client, note) => client.setNotificationHandler(ToolListChangedNotificationSchema, note),
    call: (client, params, options) => client.callTool(params, undefined, options),
    ReadBuffer,
    StdioClientTransport,
    StreamableHTTPClientTransport,
    serializeMessage,
  };
}

// Of results that are taken as they are.
const ANYTHING = { "~standard": { version: 1, vendor: "tests", validate: (value) => ({ value }) } };

const negotiated = (mode = "legacy") => (["legacy", "auto"].includes(mode) ? mode : { pin: mode });

class SocketTransport {
  constructor(sdk, path, hello) {
    this.sdk = sdk;
    this.path = path;
    this.hello = hello;
    this.buffer = new sdk.ReadBuffer();
  }
  async start() {
    this.socket = net.connect(this.path);
    this.socket.on("data", (chunk) => {
      this.buffer.append(chunk);
      for (let message; (message = this.buffer.readMessage()) !== null; ) this.onmessage?.(message);
    });
    this.socket.on("close", () => this.onclose?.());
    await new Promise((resolve, reject) => {
      this.socket.once("connect", resolve);
      this.socket.once("error", reject);
    });
    if (this.hello) await this.send({ jsonrpc: "2.0", method: "mcpd/hello", params: this.hello });
  }
  send(message) {
    return new Promise((resolve) => this.socket.write(this.sdk.serializeMessage(message), resolve));
  }
  async close() {
    this.socket.end();
  }
}

// How a job reaches the daemon.
export function transport(sdk, { socket, url, headers, command, env, hello }) {
  if (url) return new sdk.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  if (command) return new sdk.StdioClientTransport({ command: command[0], args: command.slice(1), env });
  return new SocketTransport(sdk, socket, hello);
}
