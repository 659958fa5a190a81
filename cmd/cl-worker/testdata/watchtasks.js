// Watches the tasks of a job by Microsoft's own client (@azure/batch), and prints their numbers whenever they change. It
// fails if an answer has a property that the client's models do not have, or the service's counts are others.
'use strict';
const { BatchServiceClient, BatchSharedKeyCredentials, BatchServiceMappers: mappers } = require('@azure/batch');

// unknown returns the paths of the properties of a value that a model does not have.
function unknown(value, type, path) {
  if (value === null || value === undefined) return [];
  if (type.name === 'Sequence') return value.flatMap((v, i) => unknown(v, type.element.type, `${path}[${i}]`));
  if (type.name !== 'Composite') return [];
  const model = type.modelProperties ? type : mappers[type.className].type;
  const known = new Map(Object.values(model.modelProperties).map((p) => [p.serializedName, p]));
  return Object.entries(value).flatMap(([name, v]) =>
    known.has(name) ? unknown(v, known.get(name).type, `${path}.${name}`) : [`${path}.${name}`]);
}

async function look(client, job) {
  const list = await client.task.list(job);
  const strange = JSON.parse(list._response.bodyAsText).value.flatMap((t) => unknown(t, mappers.CloudTask.type, 'task'));
  if (strange.length) throw new Error(`no model of Microsoft's has ${strange.join(', ')}`);
  const n = { active: 0, running: 0, completed: 0 };
  for (const t of list) n[t.state]++;
  const nodes = list.filter((t) => t.state === 'running').map((t) => t.nodeInfo.nodeId.slice(-4)).sort();
  return `active ${n.active}, running ${n.running}, completed ${n.completed}` + (nodes.length ? `, on nodes ${nodes.join(' ')}` : '');
}

async function main(input, ended) {
  const client = new BatchServiceClient(new BatchSharedKeyCredentials(input.account, input.key), input.url);
  let last = '';
  for (let over = false; ; ) {
    const text = await look(client, input.job);
    if (text !== last) console.log(text);
    last = text;
    if (over) break;
    over = await Promise.race([ended, new Promise((r) => setTimeout(() => r(false), 300))]);
  }
  const counts = (await client.job.getTaskCounts(input.job)).taskCounts;
  const same = `active ${counts.active}, running ${counts.running}, completed ${counts.completed}`;
  if (!last.startsWith(same)) throw new Error(`the tasks are ${last}, and the counts ${same}`);
}

let text = '', begun = false, end;
const ended = new Promise((r) => (end = () => r(true)));
process.stdin.on('end', end).on('data', (d) => {
  text += d;
  if (begun || !text.includes('\n')) return;
  begun = true;
  main(JSON.parse(text), ended).catch((e) => {
    console.error(e);
    process.exit(1);
  });
});
