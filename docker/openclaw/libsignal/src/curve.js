function absent() {
  throw new Error("libsignal is not part of this image");
}
exports.generateKeyPair = absent;
exports.calculateAgreement = absent;
exports.calculateSignature = absent;
exports.verifySignature = absent;
