function absent() {
  throw new Error("libsignal is not part of this image");
}
exports.deriveSecrets = absent;
exports.encrypt = absent;
exports.decrypt = absent;
exports.calculateMAC = absent;
exports.hash = absent;
exports.verifyMAC = absent;
