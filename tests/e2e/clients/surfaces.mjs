// A client on the TypeScript SDK that does what scripts say: as surfaces.py, which describes jobs and outcomes.
// argv: the SDK's directory. It speaks the handshake only: "mode" and "listen" are not for it.
import { symlinkSync } from "node:fs";
import net from "node:net";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${sdk}/dist/esm/${name}.js`).href);
const { Client } = await load("client/index");
const { StdioClientTransport } = await load("client/stdio");
const { ReadBuffer, serializeMessage } = await load("shared/stdio");
const { ToolListChangedNotificationSchema } = await load("types");

class SocketTransport {
  constructor(path, hello) {
    this.path = path;
    this.hello = hello;
    this.buffer = new ReadBuffer();
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
    return new Promise((resolve) => this.socket.write(serializeMessage(message), resolve));
  }
  async close() {
    this.socket.end();
  }
}

function transport({ socket, command, env, hello }) {
  if (!command) return new SocketTransport(socket, hello);
  return new StdioClientTransport({ command: command[0], args: command.slice(1), env });
}

async function listed(client) {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor ? { cursor } : undefined);
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor);
  return tools;
}

async function perform(job) {
  const client = new Client({ name: "typescript-surfaces", version: "1.0.0" });
  let changes = 0;
  let waitedFor = 0;
  let wake = () => {};
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
    changes += 1;
    wake();
  });
  await client.connect(transport(job));
  const results = [];
  for (const step of job.steps) {
    if (step.list) results.push({ tools: await listed(client) });
    else if (step.wait) {
      while (changes === waitedFor) await new Promise((resolve) => (wake = resolve));
      waitedFor = changes;
      results.push({});
    } else if (step.link) {
      symlinkSync(step.to, step.link);
      results.push({});
    } else {
      try {
        const result = await client.callTool({ name: step.call, arguments: step.arguments ?? {} });
        const text = result.content.map((item) => item.text).join("\n");
        results.push({ text, structured: result.structuredContent ?? null, isError: result.isError ?? false });
      } catch (error) {
        results.push({ fault: { code: error.code, message: error.message } });
      }
    }
  }
  const instructions = client.getInstructions();
  await client.close();
  return { instructions, changes, results };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await perform(JSON.parse(line))));
}
