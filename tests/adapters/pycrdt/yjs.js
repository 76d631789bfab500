// Applies updates of Yjs, a line of hex each, and prints the content of the roots as JSON. Edits, if asked to.
const Y = require('yjs')
const lines = require('fs').readFileSync(0, 'utf8').split('\n').filter((line) => line)
const doc = new Y.Doc()
for (const line of lines) Y.applyUpdate(doc, Buffer.from(line, 'hex'))
const content = {
  text: doc.getText('text').toString(),
  array: doc.getArray('array').toJSON(),
  map: doc.getMap('map').toJSON(),
  xml: doc.getXmlFragment('xml').toString()
}
const before = Y.encodeStateVector(doc)
doc.clientID = 77
doc.transact(() => {
  doc.getText('text').insert(0, 'from Yjs 😀')
  doc.getText('text').format(0, 4, { italic: true })
  doc.getText('text').insertEmbed(2, { image: 'x', size: 2 })
  doc.getArray('array').push([null, 2 ** 40, 1.5, new Uint8Array([1]), { deep: [1] }])
  doc.getMap('map').set('nested', new Y.Map([['k', new Y.Text('inner')]]))
  doc.getXmlFragment('xml').insert(0, [new Y.XmlElement('h1')])
})
const edit = Buffer.from(Y.encodeStateAsUpdate(doc, before)).toString('hex')
console.log(JSON.stringify({ content, edit, state: Buffer.from(Y.encodeStateVector(doc)).toString('hex') }))
