// A client on a TypeScript SDK that does what scripts say: as surfaces.py, which describes jobs and outcomes.
// argv: the SDK's directory. v1 speaks the handshake only: "mode" and "listen" are not for it. "delete" in a job
// with a URL: delete the session in the end, which these SDKs leave to their users.
import { symlinkSync } from "node:fs";
import readline from "node:readline";
import { loaded, transport } from "./wire.mjs";

const sdk = await loaded(process.argv[2]);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

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

async function called(client, step) {
  const progress = [];
  const options = step.progress ? { onprogress: (told) => progress.push(told.progress) } : undefined;
  const result = await sdk.call(client, { name: step.call, arguments: step.arguments ?? {} }, options);
  const text = result.content.map((item) => item.text).join("\n");
  return { text, structured: result.structuredContent ?? null, isError: result.isError ?? false, progress };
}

async function aborted(client, step) {
  const abort = new AbortController();
  const options = { onprogress: () => abort.abort(), signal: abort.signal };
  const call = sdk.call(client, { name: step.abort, arguments: step.arguments ?? {} }, options);
  const result = await call.catch(() => undefined);
  if (!abort.signal.aborted) throw new Error(`it was not aborted: ${JSON.stringify(result)}`);
}

async function perform(job) {
  const client = sdk.made({ name: "typescript-surfaces", version: "1.0.0" }, job.mode);
  let changes = 0;
  let waitedFor = 0;
  let wake = () => {};
  sdk.onToolsChanged(client, () => {
    changes += 1;
    wake();
  });
  const connection = transport(sdk, job);
  await client.connect(connection);
  const subscription = job.listen && (await client.listen({ toolsListChanged: true }));
  const results = [];
  for (const step of job.steps) {
    let result = {};
    try {
      if (step.list) result = { tools: await listed(client) };
      else if (step.call) result = await called(client, step);
      else if (step.abort) await aborted(client, step);
      else if (step.link) symlinkSync(step.to, step.link);
      else if (step.pause) {
        console.log(JSON.stringify({ paused: true }));
        await lines.next();
      } else if (step.wait) {
        while (changes === waitedFor) await new Promise((resolve) => (wake = resolve));
        waitedFor = changes;
      }
    } catch (error) {
      result = { fault: { code: error.status ?? error.code, message: error.message } };
    }
    results.push(result);
  }
  const instructions = client.getInstructions();
  if (subscription) await subscription.close();
  if (job.delete) await connection.terminateSession();
  await client.close();
  return { instructions, changes, results };
}

for (let line; !(line = await lines.next()).done; ) {
  console.log(JSON.stringify(await perform(JSON.parse(line.value))));
}
