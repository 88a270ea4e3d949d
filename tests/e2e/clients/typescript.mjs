// A client on the TypeScript SDK. argv: the SDK's directory, then `socket PATH` or `stdio COMMAND…`.
// Prints one JSON object: what it listed, described and got.
import net from "node:net";
import { pathToFileURL } from "node:url";

const [sdk, how, ...where] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${sdk}/dist/esm/${name}.js`).href);
const { Client } = await load("client/index");
const { StdioClientTransport } = await load("client/stdio");
const { ReadBuffer, serializeMessage } = await load("shared/stdio");

class SocketTransport {
  constructor(path) {
    this.path = path;
    this.buffer = new ReadBuffer();
  }
  start() {
    this.socket = net.connect(this.path);
    this.socket.on("data", (chunk) => {
      this.buffer.append(chunk);
      for (let message; (message = this.buffer.readMessage()) !== null; ) this.onmessage?.(message);
    });
    this.socket.on("close", () => this.onclose?.());
    return new Promise((resolve, reject) => {
      this.socket.once("connect", resolve);
      this.socket.once("error", reject);
    });
  }
  send(message) {
    return new Promise((resolve) => this.socket.write(serializeMessage(message), resolve));
  }
  async close() {
    this.socket.end();
  }
}

const transport =
  how === "socket"
    ? new SocketTransport(where[0])
    : new StdioClientTransport({ command: where[0], args: where.slice(1), env: process.env });
const client = new Client({ name: "typescript-test", version: "1.0.0" });
await client.connect(transport);
const { tools } = await client.listTools();
const described = await client.callTool({ name: "get-category-tools", arguments: { category: "clock" } });
const call = { category: "clock", name: "get_current_time", args: { timezone: "UTC" } };
const result = await client.callTool({ name: "call-category-tool", arguments: call });
const refused = await client.callTool({ name: "call-category-tool", arguments: { ...call, category: "nonsense" } });
await client.close();
console.log(
  JSON.stringify({
    tools: tools.map((tool) => tool.name),
    described: Object.keys(described.structuredContent.tools).sort(),
    zone: result.structuredContent.timezone,
    refused: refused.structuredContent.error.code,
  }),
);
